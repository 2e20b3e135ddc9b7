"""The words of the synthetic sample: opinion words by family, and the things reviews talk about.

A family is one aspect with one polarity (durability praised, taste blamed, …). Every opinion word belongs to exactly
one family (a test checks it), so the only way to know what a rare word means is the company it keeps.
"""

from typing import NamedTuple


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


def _parts(text: str) -> tuple[str, ...]:
    """The parts between commas, which may be of several words and go over several lines."""
    return tuple(" ".join(part.split()) for part in text.split(","))


class Aspect(NamedTuple):
    """One side of a product: what is said of it, and the words that praise and blame it."""

    name: str
    subjects: tuple[str, ...]
    praise: tuple[str, ...]
    blame: tuple[str, ...]


def _aspect(name: str, subjects: str, praise: str, blame: str) -> Aspect:
    return Aspect(name, _parts(subjects), _words(praise), _words(blame))


ASPECTS = (
    _aspect(
        "durability",
        "frame, hinge, handle, casing, stitching, build, lid, strap",
        """sturdy robust solid rugged durable tough stout hardy resilient unbreakable stalwart hefty reinforced
        sound indestructible dependable steadfast stable resistant toughened armored shatterproof ironclad
        strapping beefy longstanding weatherproof rustproof stainless hardened tempered seasoned enduring
        unyielding bulletproof strong sinewy staunch permanent lasting fortified braced bolstered adamantine""",
        """flimsy brittle rickety fragile wobbly shoddy breakable frail delicate ramshackle weak decrepit cracked
        splintered chipped warped frayed loose rusty shaky unstable crumbling tattered feeble tinny unsound
        collapsing snapped bent dented shattered broken fractured ripped torn leaky corroded threadbare creaky
        wonky dilapidated disposable tottering""",
    ),
    _aspect(
        "taste",
        "flavor, aftertaste, coffee, sauce, filling, broth, seasoning, chocolate",
        """delicious tasty yummy scrumptious savory flavorful delectable luscious mouthwatering appetizing toothsome
        palatable zesty tangy buttery nutty juicy succulent sweet caramelized honeyed piquant rich mellow fruity
        peppery ambrosial moreish flavorsome ripe smoky malty velvety wholesome nourishing refreshing ticklish
        zingy spiced chocolatey syrupy candied""",
        """bland bitter stale insipid rancid tasteless flavorless unpalatable sour acrid metallic soggy watery
        inedible overcooked burnt salty oversalted charred vapid dull acidic cloying saccharine gritty mushy
        spoiled moldy curdled undercooked tart brackish nauseating distasteful unappetizing vinegary doughy
        chalky rubbery gamy soapy undrinkable""",
    ),
    _aspect(
        "fit",
        "waist, sleeve, cut, sizing, length, collar, toe box, inseam",
        """fitted tailored snug proportioned flattering contoured shapely trim adjustable customized becoming
        wearable roomy slimming formfitting stretchy measured bespoke symmetrical balanced aligned squared
        matched harmonious adaptable conforming streamlined molded sculpted streamlining suited apt elastic neat
        sleek cropped lengthened proportionate suitable tapered hemmed wraparound""",
        """baggy tight undersized oversized boxy skimpy saggy misshapen constricting shapeless lopsided gaping
        bunched droopy shrunken billowy narrow uneven crooked bulging pinched twisted puckered ungainly clingy
        sagging slouchy short stunted squeezed unflattering bloated lumpish rumpled misaligned disproportionate
        asymmetrical sloppy cramped restrictive mismatched""",
    ),
    _aspect(
        "sound",
        "bass, speaker, treble, audio, volume, microphone, tone, playback",
        """crisp resonant melodious booming mellifluous harmonic tuneful sonorous dulcet punchy thumping immersive
        symphonic lilting ringing orchestral rhythmic thunderous reverberant melodic echoless audible vibrant
        euphonious musical sonic polyphonic surround chiming lyrical stereophonic silvery singing golden liquid
        layered textured articulate nuanced dynamic""",
        """tinkly muffled distorted scratchy crackling staticky screechy muddy garbled shrill hissing buzzing
        droning hollow boomy inaudible discordant cacophonous squeaky squealing raspy grating piercing rattling
        fuzzy warbling deafening jarring earsplitting humming whiny popping clipped mumbling strident blaring
        clanging atonal dissonant croaky nasal""",
    ),
    _aspect(
        "service",
        "seller, support, courier, staff, helpdesk, agent, merchant, technician",
        """courteous helpful responsive polite attentive friendly professional gracious considerate accommodating
        cordial obliging kindly respectful patient cheerful amiable thoughtful generous sympathetic cooperative
        civil approachable honest trustworthy forthcoming caring diligent affable empathetic welcoming personable
        genial conscientious devoted committed hospitable supportive understanding truthful warmhearted dutiful""",
        """rude unhelpful unresponsive dismissive impolite surly condescending hostile arrogant indifferent
        discourteous evasive deceitful dishonest negligent careless incompetent apathetic unprofessional curt
        brusque abusive insolent lazy uncaring aloof stubborn snide disrespectful grumpy sullen scornful callous
        obnoxious shady crabby sarcastic belligerent unfriendly contemptuous haughty""",
    ),
    _aspect(
        "price",
        "price, cost, deal, value, shipping fee, subscription, refill, warranty",
        """affordable economical inexpensive reasonable thrifty discounted fair cheap budget competitive bargain
        frugal moderate justified profitable worthwhile payable modest subsidized advantageous unbeatable
        equitable rewarding valuable worthy favorable marketable sensible prudent steal gratifying lucrative
        reduced halved deserved acceptable attractive realistic rational""",
        """overpriced expensive exorbitant costly extortionate inflated steep outrageous unaffordable pricey
        excessive wasteful extravagant unreasonable usurious prohibitive swindling predatory unjustified gouging
        dear ruinous immoderate worthless undue unfair exploitative stiff overvalued scandalous ludicrous
        laughable shameless greedy padded hidden bogus fraudulent rapacious""",
    ),
    _aspect(
        "comfort",
        "cushion, mattress, seat, insole, padding, backrest, headband, lining",
        """comfortable cozy plush cushy supple pillowy soft cushioned ergonomic restful breathable velour snuggly
        relaxing soothing yielding lightweight downy comfy springy bouncy plump fleecy silky homely cuddly airy
        warm gentle pampering feathery smooth weightless cradling cosseting calming easygoing unconstrained balmy
        cocooning luxurious restorative""",
        """uncomfortable lumpy scratched itchy stiffening hard painful prickly chafing aching sore abrasive rigid
        bony coarse irritating sweaty clammy suffocating knobbly bruising tiring numbing wearisome stifling
        pinching blistering achy harsh rough stingy sagged unforgiving backbreaking bumpy excruciating agonizing
        torturous punishing smothering stuffy""",
    ),
    _aspect(
        "looks",
        "color, design, finish, pattern, edging, style, shape, packaging",
        """beautiful elegant gorgeous stylish alluring pretty handsome lovely chic classy stunning graceful
        sophisticated dazzling charming exquisite ravishing fashionable dapper cute adorable radiant picturesque
        tasteful photogenic glamorous ornate decorative dashing shimmering sparkling lustrous majestic artistic
        polished splendid resplendent comely glossy posh trendy""",
        """ugly hideous tacky gaudy garish unsightly drab dowdy unattractive dingy frumpy kitschy unappealing
        blotchy faded discolored dreary grotesque homespun dated outmoded unstylish scuffed patchy monstrous
        repulsive scruffy shabby tawdry cheesy discoloring streaked yellowed lurid murky graceless unlovely
        repellent clownish unbecoming vulgar""",
    ),
    _aspect(
        "speed",
        "delivery, motor, startup, processor, charging, download, response, shutter",
        """fast quick speedy rapid swift prompt brisk instantaneous immediate zippy snappy nimble lightning
        expeditious nippy fleet punctual timely hasty accelerated express agile turbo breakneck blazing instant
        hurried lively supersonic meteoric energetic early rocketing sprightly ultrafast whirlwind flying brief
        unhesitating""",
        """slow sluggish laggy delayed tardy late plodding lethargic crawling glacial belated overdue lagging
        dawdling stalled unhurried leisurely halting stuttering ponderous interminable endless dragging creeping
        snailish choppy freezing jerky slothful postponed backlogged torpid jammed unpunctual dilatory lumbering
        gradual limping hesitant throttled""",
    ),
    _aspect(
        "smell",
        "scent, fragrance, perfume, candle, lotion, detergent, odor, foam",
        """fragrant aromatic perfumed scented sweetened floral minty citrusy flowery lemony balsamic musky ambrosian
        herbal redolent fresh woody invigorating lavender rosy vanilla cedary piney cinnamony grassy peachy
        oceanic vernal dewy powdery sandalwood jasmine honeysuckle lilac spicy earthy heavenly bewitching
        beguiling subtle""",
        """smelly stinky musty pungent putrid foul rank malodorous fetid reeking moldering noxious mildewed skunky
        stinking smelling chemical fishy sulfurous swampy rotten fusty plasticky sickening repugnant acetonic
        noisome overpowering dank choking toxic festering sickly offensive nasty feculent vile gaseous funky""",
    ),
    _aspect(
        "ease",
        "setup, manual, assembly, menu, interface, app, installation, latch",
        """easy simple intuitive effortless straightforward handy convenient foolproof friendlier painless
        uncomplicated practical accessible doable comprehensible manageable logical obvious clear navigable
        portable usable childproof seamless automatic unproblematic plain versatile flexible graspable
        undemanding legible simplified learnable guided unfussy teachable carefree breezy""",
        """complicated confusing cumbersome frustrating awkward clumsy difficult clunky unwieldy perplexing baffling
        convoluted unworkable bewildering unintuitive fiddly impractical unusable tricky finicky laborious
        cryptic incomprehensible puzzling tortuous complex inconvenient troublesome inscrutable annoying
        maddening exasperating byzantine labyrinthine fussy illogical undecipherable bothersome burdensome
        unmanageable""",
    ),
    _aspect(
        "accuracy",
        "sensor, gauge, scale, thermometer, reading, clock, tracker, calibration",
        """accurate precise exact reliable consistent correct calibrated faultless unerring meticulous trusty true
        repeatable flawless errorless infallible faithful steady rigorous verified definitive pinpoint sensitive
        scientific uniform unfailing scrupulous methodical regular certified unvarying thorough factual
        impeccable proven attuned discerning careful dialed provable""",
        """inaccurate erratic imprecise unreliable inconsistent wrong faulty glitchy defective misleading skewed
        erroneous flawed haphazard random drifting buggy incorrect approximate miscalibrated untrustworthy
        temperamental sporadic fickle deceptive fluctuating mistaken false spurious unsteady unpredictable
        wavering jittery contradictory sketchy invalid capricious inexact malfunctioning errant""",
    ),
    _aspect(
        "story",
        "plot, ending, dialogue, chapter, narrator, prose, hero, writing",
        """gripping captivating riveting engrossing compelling absorbing enthralling suspenseful thrilling moving
        poignant witty hilarious imaginative inventive spellbinding enchanting heartwarming insightful vivid
        unforgettable fascinating inspiring entertaining touching clever masterful evocative profound hypnotic
        brilliant original stirring uplifting amusing magical intriguing memorable eloquent enlightening""",
        """boring tedious predictable stereotyped hackneyed dreadful tiresome contrived implausible derivative
        pointless formulaic rambling stilted wooden trite banal pretentious pedestrian repetitive lifeless
        uninspired melodramatic incoherent preachy monotonous juvenile shallow forgettable disjointed plotless
        unconvincing corny mawkish senseless unoriginal humorless turgid verbose soporific""",
    ),
    _aspect(
        "picture",
        "screen, display, camera, lens, projector, image, monitor, viewfinder",
        """sharp bright glittering detailed luminous pristine lifelike colorful focused crystalline glowing undimmed
        saturated illuminated contrasty unfaded naturalistic lucid lit unblurred photographic cinematic panoramic
        distinct defined visible undistorted translucent gleaming transparent prismatic unclouded iridescent
        beaming sunlit unsmudged widescreen kaleidoscopic starry incandescent""",
        """blurry grainy dim pixelated hazy washy smeared foggy dark unfocused shadowy flickering overexposed
        underexposed indistinct gloomy ghosting noisy blurred cloudy smudged mottled speckled colorless glaring
        jagged banded opaque dusky unclear reddish greenish unlit fogged blocky fisheye tinted sunken lightless
        streaky""",
    ),
    _aspect(
        "hygiene",
        "filter, container, blade, brush, bottle, bowl, seal, nozzle",
        """clean sanitary hygienic spotless sterile pure immaculate cleanly sanitized washable lintless unsoiled
        cleansed rinsable tidy disinfected purified unpolluted unblemished germless scrubbed laundered filtered
        uncontaminated antiseptic odorless shiny dry stainproof airtight unstained healthy untainted safe
        antibacterial nontoxic sealed hypoallergenic bleached undefiled""",
        """dirty filthy grimy greasy unsanitary contaminated sticky soiled gunky slimy stained dusty unhygienic
        grubby polluted clogged crusty oily mucky germy infested smudgy tainted unclean sooty linty scummy cruddy
        unwashed smutty besmirched muddied impure squalid bacterial sludgy cloggy tarnished hairy encrusted""",
    ),
    _aspect(
        "power",
        "battery, engine, suction, drill, blender, heater, burner, pump",
        """powerful mighty potent forceful vigorous effective efficient capable muscular formidable forcible
        rechargeable inexhaustible tireless untiring productive industrious unstoppable intense energized
        supercharged dominant commanding fierce burly herculean heavyweight torquey lusty competent adept
        proficient performant dynamical superb effectual optimal workmanlike energizing""",
        """underpowered ineffective puny drained useless powerless inefficient anemic enfeebled impotent exhausted
        depleted wimpy ineffectual incapable inadequate insufficient lackluster dead fading overheated spent
        comatose sputtering draining inert futile unproductive struggling faltering gasping underwhelming
        flagging idle dormant inoperative wheezing lukewarm tepid dying""",
    ),
)


class Category(NamedTuple):
    """A product category: its products and the aspects (by name) its reviews speak of."""

    name: str
    products: tuple[str, ...]
    aspects: tuple[str, ...]


def _category(name: str, products: str, aspects: str) -> Category:
    return Category(name, _parts(products), _words(aspects))


CATEGORIES = (
    _category(
        "Home and Kitchen",
        """kettle, toaster, skillet, knife set, colander, rice cooker, food processor, espresso machine, lunch
        box, whisk""",
        "durability ease hygiene power",
    ),
    _category(
        "Clothing",
        "jacket, raincoat, hoodie, sundress, cardigan, pair of boots, belt, backpack, scarf, blazer",
        "fit comfort looks service",
    ),
    _category(
        "Electronics",
        """headset, tablet, webcam, router, soundbar, keyboard, smart watch, dash cam, karaoke machine,
        e-reader""",
        "sound picture power speed",
    ),
    _category(
        "Grocery",
        """granola, green tea, olive oil, cracker, hot sauce, trail mix, protein bar, ramen, honey,
        espresso blend""",
        "taste smell price service",
    ),
    _category(
        "Books",
        """novel, memoir, cookbook, mystery, audiobook, biography, travel guide, anthology, textbook, picture
        book""",
        "story speed price service",
    ),
    _category(
        "Beauty",
        """shampoo, face cream, eau de toilette, hair dryer, lip balm, body wash, sunscreen, electric razor,
        serum, bath salt""",
        "smell looks hygiene comfort",
    ),
    _category(
        "Tools",
        """cordless drill, tape measure, ladder, leaf blower, socket set, laser level, work light, pressure
        washer, workbench""",
        "durability power accuracy ease",
    ),
    _category(
        "Toys and Games",
        "puzzle, board game, toy train, dollhouse, kite, drone, robot kit, card game, play tent, telescope",
        "story sound picture durability",
    ),
    _category(
        "Pet Supplies",
        """dog bed, cat fountain, leash, bird feeder, chew toy, aquarium, litter box, travel crate, kibble,
        grooming brush""",
        "taste hygiene fit price",
    ),
    _category(
        "Sports",
        """tent, sleeping bag, bike helmet, yoga mat, rowing machine, kayak, water bottle, fitness tracker,
        hammock, racket""",
        "accuracy fit comfort speed",
    ),
)

PEOPLE = _words(
    """wife husband sister brother mother father daughter son neighbor roommate cousin boss aunt uncle nephew niece
    grandmother grandfather coworker teacher landlord girlfriend boyfriend trainer barber dentist plumber pastor
    classmate stepson goddaughter bandmate"""
)
PLACES = _words(
    """kitchen garage office bedroom cabin basement dorm camper boat studio attic hallway patio classroom garden
    barn workshop gym porch bathroom laundry clinic shed van nursery den church library greenhouse cottage
    restaurant warehouse"""
)
TIMES = _parts(
    """last week, last month, in the spring, in the fall, two years ago, before Christmas, for a birthday, in
    January, on a Monday, after the move, during a sale, for a wedding, in the summer, about ten days ago, on
    vacation, at the end of March, around Easter, for a road trip, on Black Friday, for the new house"""
)
SPANS = _parts(
    """twice a day, every morning, on weekends, after work, once a month, most evenings, every other day, during
    lunch, in the winter, on long trips, every Sunday, now and then, all year round, between meetings, before
    bed"""
)
COLORS = _words("black white red blue green gray purple orange brown pink teal beige maroon navy violet olive")
BRANDS = tuple(
    start + end
    for end in _words("atek ora ilux edon owood aline omart efield")
    for start in _words("Vel Kor Mar Tan Zep Bri Nor Lum Fen Dax Sol Hal Pim Ras Gal Quo Jun Wex Ost Cal Tro Min")
)
