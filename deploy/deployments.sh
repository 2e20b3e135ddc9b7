#!/bin/sh
# Makes the work pools that are missing, the automations and the deployments at the server of PREFECT_API_URL; again after an upgrade.
# Limits and pauses of pools, and parameters, schedules and pauses of deployments stay as people left them in the UI.
#   AMAZON_ELECTRA_STORE=/data/store sh deploy/deployments.sh      (the store's folder as the workers see it)
set -eu
: "${AMAZON_ELECTRA_STORE:?set it to the folder of the store as the workers see it}"
case $AMAZON_ELECTRA_STORE in
/* | *://*) ;;
*) echo "AMAZON_ELECTRA_STORE is $AMAZON_ELECTRA_STORE: set it to the store's folder as the workers see it, from / on, or to its address" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.."
for pool in cpu accelerator; do
    prefect work-pool inspect "$pool" > /dev/null 2>&1 || prefect work-pool create "$pool" --type process
done
file=$(python -m amazon_electra.flows.ui.deployments) # with what people changed in the UI; it makes the automations too
trap 'rm -f "$file"' EXIT
prefect --no-prompt deploy --all --prefect-file "$file"
