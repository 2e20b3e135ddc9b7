#!/bin/sh
# Tells the server of PREFECT_API_URL of the work pools, the automations and the deployments; again after an upgrade.
#   AMAZON_ELECTRA_STORE=/data/store sh deploy/deployments.sh      (the store's folder as the workers see it)
#   AMAZON_ELECTRA_PREFECT_ADMIN: the word that this server takes deployments from.
set -eu
: "${AMAZON_ELECTRA_STORE:?set it to the folder of the store as the workers see it}"
case $AMAZON_ELECTRA_STORE in
/* | *://*) ;;
*) echo "AMAZON_ELECTRA_STORE is $AMAZON_ELECTRA_STORE: set it to the store's folder as the workers see it, from / on, or to its address" >&2; exit 2 ;;
esac
[ -z "${AMAZON_ELECTRA_PREFECT_ADMIN:-}" ] || export PREFECT_CLIENT_CUSTOM_HEADERS="{\"Amazon-Electra-Administrator\": \"$AMAZON_ELECTRA_PREFECT_ADMIN\"}"
cd "$(dirname "$0")/.."
prefect work-pool create flows --type process --overwrite
prefect work-pool create cpu --type process --overwrite
prefect work-pool create accelerator --type process --overwrite
prefect work-pool create tpu --type process --overwrite
python -m amazon_electra.flows.ui.automations
prefect --no-prompt deploy --all --prefect-file "$(python -m amazon_electra.flows.ui.deployments)"
