"""First and last parts of hyphenated English words, such as `long` and `term` in `long-term`.

They decide whether a hyphen at a line end stays, where the document itself has no evidence. Parts that also begin or
end closed compounds (`over`, `able`, `less`) are not listed. Closed compounds of two listed parts are in a list of
their own.
"""

from __future__ import annotations

from typing import Final

_FIRST: Final = """
ball belt bench cross double easily fuel gear gravity hull max min multiple plastic piston pipe pump rear roller rubber
screw so spare stainless tank tooth valve water well wheel
access action age air asset award best better big black blue book bottom brand bright broad business capital car
carbon case cash cause cell centre change check city class clean clear client climate close cloud coal coarse cold
colour common community company computer content context cost country court credit critical crop current customer
cyber data day dead death decision deep demand design direct document double drug dry dual early east easy eight
eighth electric emergency employee end energy engine equal evidence export fact family far fast fault feature fifth
fine fire first five fixed flat flow food four fourth free freeze fresh fuel full fully future game gas general
glass global goal gold good grass gray great green ground group growth hand hard head health heat heavy high higher
home hot hour house human ice image income industry interest iron job key king knowledge labour land lands large
last late law lead leading least left legal less level life light line live load local long longer loss lost low
lower machine mail main major male man many mark market mass medium member memory metal mid middle mile mind mixed
mobile model money month most mother moving near need net network new newly next nine noise north object odd oil old
older one open order organic output owner page paper part patient pattern peer people performance person phase pilot
plain plant point policy poor power present pressure price privacy private problem process product profit project
proof public pulse purpose quality question quick rain random range rapid rate ready real record red reference relay
rent research resource result rich right risk river road role room rule safety salt same sample school sea search
season second security self semi sensor sentence service seven sex share ship short side signal silver single site
six sixth size skill slow small smart smoke social software soil solar sound source south space special speed spring
stage standard star state steam steel still stock stone storm street strong student sugar summer super supply
surface system tailor target task tax team tech ten text thick thin third three tight time top touch trade traffic
train tree trust turn twelve twenty two upper user value vehicle vendor very voice wage warm waste water wave weak
weather web week weight west white whole wide wind winter wood word work worker world worst write year yellow young
zero
"""
_LAST: Final = """
breaker bridge called clock corner counter date distance door entry example fitting floor floors gate gauge house
houses hull leg letter lever light mounting operated pane phase plate pole position pump ratio resistance return roof
screen scheme shell shift speaking storey stroke tank tier tube valve wall winded window wire works zone
abiding absorbing accepted acting action activated added adjusted aided aligned altering art assembled assessment
assisted averse aware backed balanced bank based bearing bed bedroom benefit blind blown blue bodied book born bound
breaking bred brown building built buyer capacity carbon card care caring carrying case category centred centric
century certain changing channel charge checking choice cited city clad class cleaning clear coated code cold
coloured column committed common connected conscious consuming core cost couple course covered craft critical
cutting cycle date day deep defined degree dependent depth derived described design designed detached determined
determining developed dimensional driven driving dry duty dwelling earned earning earth easy economic edge educated
effect effective efficient eighth elect emission enabled end energy engine enhanced established evident face faced
factor family fashioned fed fee feeding field fifth fifths fight filled finding fire firing five fixed flow flowing
foot force form found founded four fourth free frequency fuelled full funded gap gas generated generation giving
glass grade green grey ground group growing grown guided hand handed hard headed hearted heat heavy held help high
hold home hot hour house impact implemented importance inch income induced industry informed intensive interest
invasive iron issue keeping kept key known large lasting law layer leading learning legged length level life light
limit limited limiting line linear linked lit litre live lived living load loaded loading local long looking loss
low made making managed management mannered market master matter meaning measure measured meeting metre metric mile
minded minute mixed mode model money month mounted moving named needed needs neutral new nine ninth numbered offer
office old one only open operated order ordered oriented out own owned owning page paid paper part partner party
pass paying people performing period person phase piece place placed plan planned planning plus point policy poor
positive post power powered present pressure prevention price priced printing priority process processing produced
producing product proof protected proven purpose quality quarter quarters question race raising range ranging rank
ranked rate rated reaching read ready real recorded reduced reducing reference related relevant reported resistant
resolution responsive rich right risk room rule run running safe sale saving scale scored seat secondary section
sector seeking selected selling sensitive sensor server service serving setting seven seventh shaped share shared
sharing shift side sided sign site sixth size sized skilled slow small smoking solving sound source space speaking
specific speed spread stage standard standing state step stock stop storage store strategy strength structured
student style supplied supply supported surface sustaining system tailored taking talk tax teaching team tech
tempered tenth term test tested testing text thinking third thirds thought three time times tone tonne top touch
trade trained training transfer treated turn twelfth two typed unit use used user value valued variable vehicle
verified view voltage volume waste watch water wave week weight weighted wheel wheeled white wide winning word work
worker worn worthy written year years yellow yield young
"""
_ONE_WORD: Final = """
airline airtime blackout bookcase bookkeeping bookstore broadside carcase carload checkout checkpoint classroom
commonplace countryside courtroom dataclass daybook daylight daytime deadline deathbed endpoint fireplace fireproof
firework firstborn freeborn freehand freehold freestyle freewheel freshwater fulltime grayscale greenfield
greenhouse groundwater groundwork handbook handmade handwritten headlight headline headlong headquarters highborn
highlight homemade homepage homework hotline hottest hourglass household housekeeping keyspace keyword landform
landline lifecycle lifeline lifelong lifestyle lifetime lighthouse lightweight longside lowercase mainline
malefactor mandate manmade marketplace midday midpoint network newborn newline onesided paperwork parttime proofread
rainwater redaction roadside saltwater schoolbook schoolmaster seaside seawater seaworthy sentencepiece shipbuilding
shorthand sideline soundproof springtime starlight statecraft stonework streetlight stronghold summertime superadded
superclass superinduced teamwork textbook timeline timeout timescale trustworthy uppercase watercourse waterline
waterproof waveform wavelength website weekday weekend whitespace wholesale widespread windproof woodwork workbook
workday workflow workforce workgroup workhouse workload workplace workspace worldwide
"""

FIRST: Final = frozenset(_FIRST.split())
LAST: Final = frozenset(_LAST.split())
ONE_WORD: Final = frozenset(_ONE_WORD.split())
