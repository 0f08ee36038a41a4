"""A small corpus of invented facts about invented things: passages, questions, and the sentence that answers each."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from msgspec import Struct

Language = Literal["en", "zh"]


class Item(Struct, frozen=True, dict=True):
    """One question and the passage that answers it.

    `answer_at` is the index of the answering sentence; `key` are words that it shares with `answer` and that occur in
    no other sentence of the passage. `mistaken` is a plausible answer that the passage does not support.
    """

    id: str
    domain: str
    title: str
    sentences: tuple[str, ...]
    answer_at: int
    key: str
    question: str
    answer: str
    mistaken: str
    language: Language = "en"

    @cached_property
    def passage(self) -> str:
        """The whole passage as one text."""
        return join(self.sentences, self.language)

    @property
    def answer_sentence(self) -> str:
        return self.sentences[self.answer_at]

    @cached_property
    def passage_cut(self) -> str:
        """The passage without the sentence that answers the question."""
        rest = self.sentences[: self.answer_at] + self.sentences[self.answer_at + 1 :]
        return join(rest, self.language)


def join(sentences: tuple[str, ...] | list[str], language: Language) -> str:
    """Sentences as one text; Chinese needs no space between them."""
    return ("" if language == "zh" else " ").join(sentences)


def of_domain(domain: str) -> list[Item]:
    """The items of one domain, in order."""
    return [item for item in CORPUS if item.domain == domain]


def asked_in(text: str) -> Item | None:
    """The item whose question stands latest in the text, or None."""
    places = [(text.rfind(item.question), item) for item in CORPUS]
    place, item = max(places, key=lambda pair: pair[0])
    return item if place >= 0 else None


def holds_a_passage(text: str) -> bool:
    """Whether any sentence of the corpus stands in the text."""
    return any(sentence in text for item in CORPUS for sentence in item.sentences)


CORPUS: tuple[Item, ...] = (
    # ------------------------------------------------------------ harbour
    Item(
        "harbour-lock", "harbour", "The Velmar sea lock",
        (
            "The sea lock at Velmar was rebuilt after the storm surge that broke its old timber gates.",
            "Its chamber is 214 metres long, so two coastal freighters can pass through together.",
            "The gates are moved by water-driven pistons instead of electric winches.",
            "Pilots announce their arrival on channel eleven half an hour before they reach the outer buoy.",
        ),
        1, "214 metres", "How long is the chamber of the Velmar sea lock?",
        "The chamber of the Velmar sea lock is 214 metres long.",
        "The Velmar sea lock has a chamber of about 97 metres.",
    ),
    Item(
        "harbour-crane", "harbour", "Old Brannoch, the floating crane",
        (
            "Old Brannoch is the floating crane that the Tessel yard keeps for salvage work.",
            "Its boom was painted yellow so that aircraft see it in fog.",
            "The crew changes every six days at the fuel pier.",
            "The heaviest load it ever raised was the ferry Morwenna, weighing 1,860 tonnes with the mud inside her.",
            "Since then the yard has kept a plaque with the names of the divers.",
        ),
        3, "1,860 tonnes", "What was the heaviest load that the floating crane Old Brannoch ever raised?",
        "The heaviest load was the ferry Morwenna, which weighed 1,860 tonnes with the mud inside her.",
        "Its heaviest load was a bridge section of roughly 640 tonnes.",
    ),
    Item(
        "harbour-fee", "harbour", "Berthing at Quay Nine",
        (
            "Quay Nine in Port Ardel serves fishing boats and small research vessels.",
            "Water and shore power are free for the first night.",
            "A vessel that stays beyond its booked slot pays a surcharge of 45 crowns for every started hour.",
            "Bookings are taken at the red kiosk by the ice house.",
        ),
        2, "45 crowns", "What surcharge does a vessel pay for overstaying its slot at Quay Nine?",
        "A vessel that overstays its slot at Quay Nine pays 45 crowns for every started hour.",
        "Overstaying at Quay Nine costs a flat 200 crowns a day.",
    ),
    Item(
        "harbour-beacon", "harbour", "The Sorrel Point beacon",
        (
            "The beacon on Sorrel Point guides ships into the eastern channel.",
            "It was lit with whale oil for forty years and later with gas.",
            "Its signal is three short green flashes followed by a dark pause of seven seconds.",
            "The keeper's house is now a shelter for walkers.",
        ),
        2, "three short green flashes", "What light signal does the Sorrel Point beacon give?",
        "The Sorrel Point beacon gives three short green flashes followed by a dark pause of seven seconds.",
        "It shows one long red flash every minute.",
    ),
    Item(
        "harbour-dredge", "harbour", "Dredging of the Lirren basin",
        (
            "Silt from the river Lirren fills the inner basin by a hand's breadth each winter.",
            "The port authority sends a suction dredger in the first week of April.",
            "The dredged silt is carried to the brickworks at Ommery, where it is fired into roof tiles.",
            "Swimming is forbidden while the pipes are in the water.",
        ),
        2, "brickworks at Ommery", "Where does the silt dredged from the Lirren basin go?",
        "The dredged silt goes to the brickworks at Ommery, where it is fired into roof tiles.",
        "The silt is dumped at sea beyond the outer reef.",
    ),
    Item(
        "harbour-pilot", "harbour", "Pilotage in the Kessock narrows",
        (
            "The Kessock narrows turn twice within a mile and have no room for two large ships.",
            "Every ship longer than 90 metres must take a local pilot on board.",
            "The pilot boat waits behind the breakwater until the tide gauge reads two metres.",
            "In heavy rain the narrows are lit by lamps on both banks.",
        ),
        1, "90 metres", "Which ships must take a pilot through the Kessock narrows?",
        "Every ship longer than 90 metres must take a local pilot through the Kessock narrows.",
        "Only tankers that carry fuel need a pilot there.",
    ),
    # ------------------------------------------------------------ observatory
    Item(
        "observatory-mirror", "observatory", "The Halden mirror",
        (
            "The main mirror of the Halden observatory was cast in a disused glass bottle factory.",
            "Grinding it to shape took the workshop three winters.",
            "It is coated with a layer of protected silver that is renewed every 26 months.",
            "Visitors can see the old tin mould in the entrance hall.",
        ),
        2, "26 months", "How often is the silver coating of the Halden mirror renewed?",
        "The silver coating of the Halden mirror is renewed every 26 months.",
        "The coating is renewed once in ten years.",
    ),
    Item(
        "observatory-comet", "observatory", "Comet Ilvane",
        (
            "Comet Ilvane was found by a schoolteacher who compared two photographic plates.",
            "It comes close to the Sun once every 61 years.",
            "Its tail has a faint violet colour that puzzled early observers.",
            "No probe has visited it so far.",
        ),
        1, "61 years", "How often does comet Ilvane come close to the Sun?",
        "Comet Ilvane comes close to the Sun once every 61 years.",
        "It returns about every 18 years.",
    ),
    Item(
        "observatory-dome", "observatory", "The dome of Mount Quist",
        (
            "The dome on Mount Quist turns on a ring of bronze rollers.",
            "When wind speed passes 22 metres per second the shutter closes by itself.",
            "A caretaker clears snow from the rail each morning in winter.",
            "The road to the summit is open from May to October.",
        ),
        1, "22 metres per second", "At what wind speed does the shutter of the Mount Quist dome close?",
        "The shutter closes by itself when wind speed passes 22 metres per second.",
        "It has to be closed by hand once gusts reach 40 knots.",
    ),
    Item(
        "observatory-radio", "observatory", "The Pell Valley array",
        (
            "The Pell Valley array listens to hydrogen clouds in nearby galaxies.",
            "It consists of 38 dishes laid out in the shape of a fern leaf.",
            "Mobile phones are collected at the gate because they disturb the receivers.",
            "Sheep graze between the dishes and keep the grass short.",
        ),
        1, "38 dishes", "How many dishes does the Pell Valley array have?",
        "The Pell Valley array has 38 dishes, laid out in the shape of a fern leaf.",
        "The array is made of 12 large dishes in a circle.",
    ),
    Item(
        "observatory-archive", "observatory", "The plate archive at Corven",
        (
            "The Corven archive keeps glass plates taken before electronic cameras existed.",
            "The plates are stored upright in cedar drawers to keep moths and damp away.",
            "The oldest plate shows the Crown Cluster and was exposed in 1893 by Edda Marsh.",
            "Scanning of the whole archive is planned but has not begun.",
        ),
        2, "Edda Marsh", "Who exposed the oldest plate in the Corven archive?",
        "The oldest plate in the Corven archive was exposed in 1893 by Edda Marsh.",
        "It was taken by the archive's founder, Tobias Lindqvist.",
    ),
    Item(
        "observatory-sensor", "observatory", "The Norn camera",
        (
            "The Norn camera was built to search for asteroids that approach from the evening sky.",
            "It takes one picture every forty seconds throughout the night.",
            "To keep its noise low the sensor is cooled to minus 112 degrees with liquid krypton.",
            "The pictures are sent to the university by a laser link.",
        ),
        2, "minus 112 degrees", "To what temperature is the sensor of the Norn camera cooled?",
        "The sensor of the Norn camera is cooled to minus 112 degrees with liquid krypton.",
        "The sensor runs at room temperature behind a fan.",
    ),
    # ------------------------------------------------------------ database
    Item(
        "database-snapshot", "database", "Quillbase snapshots",
        (
            "Quillbase writes a snapshot of each table to the directory named in its settings.",
            "A snapshot is compressed with a dictionary that is learned from the first thousand rows.",
            "By default the five most recent snapshots are kept and older ones are deleted.",
            "Reading continues while a snapshot is being written.",
        ),
        2, "five most recent snapshots", "How many snapshots does Quillbase keep by default?",
        "By default Quillbase keeps the five most recent snapshots and deletes older ones.",
        "Quillbase keeps all snapshots until an operator removes them.",
    ),
    Item(
        "database-port", "database", "Connecting to a Quillbase node",
        (
            "A Quillbase node accepts clients over TCP and over a local socket.",
            "The client port is 7413 unless the setting listen_port says otherwise.",
            "Passwords are never sent in clear; a challenge is signed instead.",
            "Idle connections are closed after a quarter of an hour.",
        ),
        1, "7413", "Which port does a Quillbase node use for clients?",
        "A Quillbase node uses port 7413 for clients unless listen_port says otherwise.",
        "Clients connect on port 5900.",
    ),
    Item(
        "database-index", "database", "Ember indexes",
        (
            "An ember index speeds up queries that ask for the newest rows of a group.",
            "It lives in memory only and is rebuilt when the node starts.",
            "An ember index cannot be created on a column that allows empty values.",
            "Dropping one takes effect at the end of the current transaction.",
        ),
        2, "allows empty values", "On which columns can an ember index not be created?",
        "An ember index cannot be created on a column that allows empty values.",
        "Ember indexes are refused on text columns.",
    ),
    Item(
        "database-replica", "database", "Replication lag in Quillbase",
        (
            "Followers in Quillbase copy the log of the leader and replay it in order.",
            "The command show lag prints how far each follower is behind.",
            "A follower that is more than 900 seconds behind stops answering reads.",
            "Followers can be chained, but chains longer than three are discouraged.",
        ),
        2, "900 seconds", "When does a Quillbase follower stop answering reads?",
        "A Quillbase follower stops answering reads when it is more than 900 seconds behind.",
        "It stops as soon as it has missed ten transactions.",
    ),
    Item(
        "database-backup", "database", "Restoring with quill-restore",
        (
            "The tool quill-restore reads a backup and writes it into an empty node.",
            "It refuses to run on a node that already holds tables.",
            "With the flag --until the restore stops at the given minute, which undoes an accidental deletion.",
            "Progress is printed once for every gigabyte.",
        ),
        2, "--until", "Which flag of quill-restore stops the restore at a given minute?",
        "The flag --until stops the restore at the given minute.",
        "You have to pass --dry-run and the date.",
    ),
    Item(
        "database-licence", "database", "Editions of Quillbase",
        (
            "Quillbase comes in a community edition and in an edition for companies.",
            "Both read the same files, so one can move between them without a dump.",
            "The company edition adds audit trails and encryption of single columns.",
            "Support by telephone is offered in four languages.",
        ),
        2, "audit trails", "What does the company edition of Quillbase add?",
        "The company edition of Quillbase adds audit trails and encryption of single columns.",
        "It adds unlimited storage and a graphical editor.",
    ),
    # ------------------------------------------------------------ cheese
    Item(
        "cheese-tarn", "cheese", "Tarn Blue",
        (
            "Tarn Blue is made from the evening milk of goats that graze above the tree line.",
            "The wheels ripen in slate caves whose air is moved by a single wooden fan.",
            "A wheel of Tarn Blue must ripen for at least 140 days before it may carry the name.",
            "Its rind smells of hay and wet stone.",
        ),
        2, "140 days", "How long must a wheel of Tarn Blue ripen?",
        "A wheel of Tarn Blue must ripen for at least 140 days before it may carry the name.",
        "Two weeks in the cellar are enough for it.",
    ),
    Item(
        "cheese-ostry", "cheese", "Ostry curd",
        (
            "Ostry curd is sold fresh in baskets woven from willow.",
            "Farmers set the milk with sap from fig leaves, which gives the curd a nutty taste.",
            "It is eaten with buckwheat pancakes at the spring fair.",
            "The baskets are returned and used again.",
        ),
        1, "sap from fig leaves", "What do farmers use to set the milk for Ostry curd?",
        "They set the milk with sap from fig leaves, which gives Ostry curd a nutty taste.",
        "The milk is set with lemon juice and vinegar.",
    ),
    Item(
        "cheese-guild", "cheese", "The guild of Mallen cheesemakers",
        (
            "The cheesemakers of Mallen formed a guild after a dispute about salt.",
            "The guild meets on the first Monday after the cows come down from the hills.",
            "New members have to present a cheese that weighs exactly 8 kilograms.",
            "The guild hall burned down once and was rebuilt in brick.",
        ),
        2, "8 kilograms", "What must new members present to the guild of Mallen cheesemakers?",
        "New members must present a cheese that weighs exactly 8 kilograms.",
        "New members pay a fee and recite the oath of the hall.",
    ),
    Item(
        "cheese-smoke", "cheese", "Smoked Pardo",
        (
            "Smoked Pardo comes from the rainy side of the Esk hills.",
            "The loaves are bound with red string and hung in pairs.",
            "They are smoked over juniper and apple wood for two nights.",
            "Dark spots on the rind are a sign of quality.",
        ),
        2, "juniper and apple wood", "Over which wood is Pardo cheese smoked?",
        "Pardo cheese is smoked over juniper and apple wood for two nights.",
        "Only old oak barrels are burned for it.",
    ),
    Item(
        "cheese-market", "cheese", "The Friday market at Sill",
        (
            "Sill holds its cheese market on Fridays in the square before the mill.",
            "Traders test a wheel by knocking on it and listening.",
            "The price of the day is set by the first handshake, which takes place at ten past six.",
            "Dogs are not admitted to the square before noon.",
        ),
        2, "first handshake", "How is the price of the day set at the Friday market in Sill?",
        "The price of the day is set by the first handshake, at ten past six.",
        "An auctioneer posts the price on the town hall door.",
    ),
    Item(
        "cheese-culture", "cheese", "The Ravel culture",
        (
            "Ravel is a culture of bacteria that dairies keep alive from one batch to the next.",
            "It was first described by the chemist Ione Tasker in a letter to her sister.",
            "Above 44 degrees the Ravel culture dies and the milk turns bitter.",
            "Dairies share samples of it with their neighbours.",
        ),
        2, "44 degrees", "Above what temperature does the Ravel culture die?",
        "The Ravel culture dies above 44 degrees and the milk turns bitter.",
        "It survives boiling but not freezing.",
    ),
    # ------------------------------------------------------------ railway
    Item(
        "railway-gauge", "railway", "The Mirren mountain line",
        (
            "The Mirren mountain line climbs from the lake to the slate quarries.",
            "It was laid to a gauge of 820 millimetres because the tunnels had been cut for carts.",
            "Trains take fifty minutes for the whole climb.",
            "In autumn leaves on the rails are washed off with lake water.",
        ),
        1, "820 millimetres", "What is the gauge of the Mirren mountain line?",
        "The Mirren mountain line has a gauge of 820 millimetres.",
        "It uses the standard gauge of the national network.",
    ),
    Item(
        "railway-bridge", "railway", "The Anselm viaduct",
        (
            "The Anselm viaduct carries the coast railway over a valley of orchards.",
            "Its arches were built without steel, only from brick and lime mortar.",
            "The viaduct stands on 17 piers, the tallest of which rises from the river bed.",
            "Swifts nest under the parapet in summer.",
        ),
        2, "17 piers", "How many piers does the Anselm viaduct stand on?",
        "The Anselm viaduct stands on 17 piers.",
        "There are 32 piers, all of the same height.",
    ),
    Item(
        "railway-ticket", "railway", "Day tickets of the Orrin tramway",
        (
            "The Orrin tramway runs from the hospital to the botanical garden.",
            "A day ticket costs 6 florins and covers a bicycle as well.",
            "Inspectors wear a blue armband with a brass button.",
            "The last tram leaves the garden at a quarter to midnight.",
        ),
        1, "6 florins", "How much is a day ticket of the Orrin tramway?",
        "A day ticket of the Orrin tramway costs 6 florins and covers a bicycle as well.",
        "It costs 15 florins, without bicycles.",
    ),
    Item(
        "railway-engine", "railway", "The engine Blue Hesper",
        (
            "Blue Hesper was the last steam engine built at the Dorrow works.",
            "She pulled the night mail between the two capitals for nineteen years.",
            "Her boiler was replaced after a crack was found near the firebox door.",
            "Today Blue Hesper stands in the transport museum of Calder.",
        ),
        3, "museum of Calder", "Where does the steam engine Blue Hesper stand today?",
        "Today Blue Hesper stands in the transport museum of Calder.",
        "She was scrapped and her bell hangs in a church.",
    ),
    Item(
        "railway-signal", "railway", "Lantern code of the Fenn junction",
        (
            "At Fenn junction two lines cross on the level.",
            "Signalmen there still use lanterns when the power fails.",
            "Two white lanterns side by side mean that the freight train has priority.",
            "The code is painted on the wall of the waiting room.",
        ),
        2, "freight train has priority", "What do two white lanterns mean at Fenn junction?",
        "Two white lanterns side by side mean that the freight train has priority.",
        "They warn of workers on the track.",
    ),
    Item(
        "railway-sleeper", "railway", "The sleeper train to Vost",
        (
            "The sleeper train to Vost leaves the capital every second evening.",
            "Its dining car serves barley soup until one in the morning.",
            "Passengers with a compartment of their own may bring a cat if it stays in a basket.",
            "Breakfast is left at the door in a paper bag.",
        ),
        2, "a cat", "Which animal may passengers bring on the sleeper train to Vost?",
        "Passengers with a compartment of their own may bring a cat if it stays in a basket.",
        "Small dogs are allowed in the dining car.",
    ),
    # ------------------------------------------------------------ insurance
    Item(
        "insurance-bicycle", "insurance", "Larkfield bicycle cover",
        (
            "Larkfield Mutual insures bicycles against theft and broken frames.",
            "The cover holds in the whole country and for trips of up to two months abroad.",
            "A theft has to be reported within 72 hours, with the number of the frame.",
            "Locks are not covered by themselves.",
        ),
        2, "72 hours", "Within what time must a theft be reported under the Larkfield bicycle cover?",
        "A theft must be reported within 72 hours, with the number of the frame.",
        "Reports are accepted up to one month after the theft.",
    ),
    Item(
        "insurance-flood", "insurance", "Flood damage with Larkfield",
        (
            "Houses within sight of a river need a separate flood contract at Larkfield Mutual.",
            "An assessor measures the height of the doorstep above the water mark.",
            "For flood damage the owner bears the first 1,200 talers of every claim.",
            "Sandbags can be borrowed from the branch office.",
        ),
        2, "1,200 talers", "How much of a flood claim does the owner bear at Larkfield?",
        "The owner bears the first 1,200 talers of every flood claim.",
        "The owner bears a tenth of the damage, without a minimum.",
    ),
    Item(
        "insurance-travel", "insurance", "Larkfield travel contract",
        (
            "The travel contract of Larkfield Mutual begins at the front door of the insured.",
            "It pays for a cancelled journey when a doctor advises against it.",
            "Journeys by hot-air balloon are excluded from the travel contract.",
            "Luggage is covered up to the value stated in the policy.",
        ),
        2, "hot-air balloon", "Which journeys are excluded from the Larkfield travel contract?",
        "Journeys by hot-air balloon are excluded from the Larkfield travel contract.",
        "Business trips and cruises are not covered.",
    ),
    Item(
        "insurance-bonus", "insurance", "The no-claims bonus",
        (
            "Members of Larkfield Mutual share in the surplus of a good year.",
            "Whoever makes no claim for three years in a row pays 18 percent less in the fourth.",
            "The bonus is lost when a premium is late by more than a season.",
            "It can be passed on to a child who moves out.",
        ),
        1, "18 percent", "What reduction does a Larkfield member get after three years without a claim?",
        "A member without a claim for three years in a row pays 18 percent less in the fourth.",
        "The premium is halved from the second year on.",
    ),
    Item(
        "insurance-pet", "insurance", "Cover for old dogs",
        (
            "Larkfield Mutual pays the veterinary bills of dogs and ferrets.",
            "A puppy can be insured from the day of its first vaccination.",
            "Dogs older than eleven years are accepted only with a certificate of their heart.",
            "Grooming is never paid.",
        ),
        2, "certificate of their heart", "What does Larkfield require for dogs older than eleven years?",
        "Dogs older than eleven years are accepted only with a certificate of their heart.",
        "For old dogs the premium is doubled, nothing else is needed.",
    ),
    Item(
        "insurance-contact", "insurance", "Reaching the claims desk",
        (
            "The claims desk of Larkfield Mutual sits in the former post office of Hale.",
            "Letters are answered in the order in which they arrive.",
            "Urgent claims can be made by telephone on weekdays between seven and nineteen hours.",
            "Claims in sign language are taken by video every Wednesday.",
        ),
        3, "every Wednesday", "When does the Larkfield claims desk take claims in sign language?",
        "Claims in sign language are taken by video every Wednesday.",
        "They are taken on the last day of the month, by appointment.",
    ),
    # ------------------------------------------------------------ 茶
    Item(
        "tea-yunxi", "tea", "云栖岭白毫",
        (
            "云栖岭白毫产于海拔一千四百米的云栖岭北坡。",
            "采茶只在清明前的十二天内进行，过后便封山养树。",
            "茶农用竹匾摊晾鲜叶，不用机器烘干。",
            "当地人待客时先敬一杯山泉水，再奉茶。",
        ),
        1, "清明前的十二天", "云栖岭白毫什么时候采摘？",
        "云栖岭白毫只在清明前的十二天内采摘。",
        "云栖岭白毫一年四季都可以采摘。", "zh",
    ),
    Item(
        "tea-kiln", "tea", "石湾窑茶壶",
        (
            "石湾窑的茶壶以青灰色的釉面闻名。",
            "老窑依山而建，窑口朝向东南。",
            "每一窑要连烧五十六个小时，中途不能开门。",
            "烧坏的壶会被砸碎，埋在窑前的桂花树下。",
        ),
        2, "五十六个小时", "石湾窑每一窑要烧多长时间？",
        "石湾窑每一窑要连烧五十六个小时，中途不能开门。",
        "石湾窑通常烧一个星期才熄火。", "zh",
    ),
    Item(
        "tea-water", "tea", "青螺镇泡茶用水",
        (
            "青螺镇的茶馆都沿着一条小河而开。",
            "店家泡茶从不用河水，而用镇东老井里的水。",
            "每家茶馆门口都挂着一只木葫芦。",
            "到了冬天，茶馆会在炉边烤红薯送给客人。",
        ),
        1, "镇东老井里的水", "青螺镇的茶馆用什么水泡茶？",
        "青螺镇的茶馆用镇东老井里的水泡茶。",
        "茶馆用的是雪水，由店家自己收集。", "zh",
    ),
    Item(
        "tea-festival", "tea", "鹿鸣茶会",
        (
            "鹿鸣茶会由三个村子轮流主办。",
            "参加茶会的人要自己带一只杯子，不能借用。",
            "获胜的茶农可以得到一头小鹿的木雕和三年的免租。",
            "茶会结束时，众人把剩下的茶水浇在最老的茶树下。",
        ),
        2, "三年的免租", "鹿鸣茶会的获胜者得到什么奖励？",
        "获胜的茶农可以得到一头小鹿的木雕和三年的免租。",
        "获胜者会得到一万元奖金和一辆汽车。", "zh",
    ),
    Item(
        "tea-transport", "tea", "雁门古道的茶砖",
        (
            "雁门古道上的马帮曾经把茶砖运到北方的草原。",
            "一匹马每次驮二十四块茶砖，多一块也不肯走。",
            "马铃的声音能传过两道山梁。",
            "如今古道上只剩下徒步的旅人。",
        ),
        1, "二十四块茶砖", "雁门古道上一匹马每次驮多少块茶砖？",
        "一匹马每次驮二十四块茶砖。",
        "一匹马一次能驮一百块左右。", "zh",
    ),
    Item(
        "tea-storage", "tea", "墨竹陈茶的存放",
        (
            "墨竹陈茶要放在通风的阁楼里慢慢变化。",
            "茶箱用樟木做成，外面裹一层粗麻布。",
            "存放满九年的墨竹陈茶才可以盖上红印。",
            "每年立夏，主人会打开箱子翻一次茶。",
        ),
        2, "存放满九年", "墨竹陈茶要存放多久才能盖上红印？",
        "墨竹陈茶存放满九年才可以盖上红印。",
        "墨竹陈茶放三个月就能盖印出售。", "zh",
    ),
    # ------------------------------------------------------------ 快递
    Item(
        "parcel-refund", "parcel", "飞鹭快递的赔付",
        (
            "飞鹭快递为每个包裹提供基本保障。",
            "未保价的包裹丢失时，最高赔付三百元。",
            "客户需要在手机上提交照片和收据。",
            "客服会在收到材料后给出编号，方便查询进度。",
        ),
        1, "最高赔付三百元", "飞鹭快递未保价的包裹丢失时最高赔多少？",
        "飞鹭快递未保价的包裹丢失时，最高赔付三百元。",
        "丢失的包裹按照运费的两倍赔偿。", "zh",
    ),
    Item(
        "parcel-locker", "parcel", "飞鹭智能柜",
        (
            "飞鹭智能柜设在小区的东门旁边。",
            "包裹放入柜子后，取件码会发到收件人的手机。",
            "超过三十六小时未取的包裹会被退回网点。",
            "大件包裹请到网点领取。",
        ),
        2, "三十六小时", "飞鹭智能柜里的包裹多久不取会被退回？",
        "超过三十六小时未取的包裹会被退回网点。",
        "包裹可以一直放在柜子里，不会退回。", "zh",
    ),
    Item(
        "parcel-cold", "parcel", "飞鹭冷链",
        (
            "飞鹭冷链用来运送海鲜和疫苗。",
            "车厢里装有两套独立的制冷机。",
            "运输途中温度必须保持在零下十八度以下。",
            "司机每隔两小时在平台上登记一次。",
        ),
        2, "零下十八度", "飞鹭冷链运输途中的温度要求是什么？",
        "飞鹭冷链运输途中温度必须保持在零下十八度以下。",
        "温度保持在十度左右就可以了。", "zh",
    ),
    Item(
        "parcel-member", "parcel", "飞鹭会员",
        (
            "飞鹭会员分为银羽和金羽两级。",
            "一年内寄满五十件包裹的客户自动升为金羽会员。",
            "会员生日当天可以免费寄一封信。",
            "会员积分不能转让给他人。",
        ),
        1, "寄满五十件包裹", "怎样才能升为飞鹭金羽会员？",
        "一年内寄满五十件包裹的客户自动升为金羽会员。",
        "一次性充值一千元即可升级。", "zh",
    ),
    Item(
        "parcel-forbidden", "parcel", "飞鹭禁寄物品",
        (
            "寄件之前，快递员会当面查看包裹里的东西。",
            "飞鹭快递不收寄活的动物，但蜜蜂除外。",
            "液体要用双层密封袋包好。",
            "违反规定的包裹会被留在网点。",
        ),
        1, "蜜蜂除外", "飞鹭快递收寄哪一种活的动物？",
        "飞鹭快递不收寄活的动物，但蜜蜂除外。",
        "猫和狗都可以寄，只要有笼子。", "zh",
    ),
    Item(
        "parcel-island", "parcel", "海岛派送",
        (
            "飞鹭快递也给沿海的小岛送包裹。",
            "去往白沙岛的船每逢周二和周六出发。",
            "遇到台风时，派送会顺延到风停之后。",
            "岛上的收件人可以委托小卖部代收。",
        ),
        1, "周二和周六", "去往白沙岛的派送船什么时候出发？",
        "去往白沙岛的船每逢周二和周六出发。",
        "船每天早上都会开，全年无休。", "zh",
    ),
)  # fmt: skip

DOMAINS: tuple[str, ...] = tuple(dict.fromkeys(item.domain for item in CORPUS))
