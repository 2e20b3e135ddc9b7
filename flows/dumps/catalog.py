"""The public releases of Amazon reviews: their categories, how many reviews each publishes, and
where they lie.

Described on https://cseweb.ucsd.edu/~jmcauley/datasets/amazon_v2/ (Ni et al. 2019) and
https://amazon-reviews-2023.github.io/ (Hou et al. 2024). Written down without a network and not yet
checked against those pages: the counts of 2018 add up to 230.1 million, not to the 233.1 million
published. No checksums are known.
"""

from typing import NamedTuple


class Release(NamedTuple):
    about: str
    address: str  # {category} is replaced by a category's name
    reviews: dict[str, int | None]  # per category, as published; None where it is not

    def address_of(self, category: str) -> str:
        return self.address.format(category=category)


_HOME = "https://mcauleylab.ucsd.edu/public_datasets/data"

_REVIEWS_2018 = {
    "AMAZON_FASHION": 883_636,
    "All_Beauty": 371_345,
    "Appliances": 602_777,
    "Arts_Crafts_and_Sewing": 2_875_917,
    "Automotive": 7_990_166,
    "Books": 51_311_621,
    "CDs_and_Vinyl": 4_543_369,
    "Cell_Phones_and_Accessories": 10_063_255,
    "Clothing_Shoes_and_Jewelry": 32_292_099,
    "Digital_Music": 1_584_082,
    "Electronics": 20_994_353,
    "Gift_Cards": 147_194,
    "Grocery_and_Gourmet_Food": 5_074_160,
    "Home_and_Kitchen": 21_928_568,
    "Industrial_and_Scientific": 1_758_333,
    "Kindle_Store": 5_722_988,
    "Luxury_Beauty": 574_628,
    "Magazine_Subscriptions": 89_689,
    "Movies_and_TV": 8_765_568,
    "Musical_Instruments": 1_512_530,
    "Office_Products": 5_581_313,
    "Patio_Lawn_and_Garden": 5_236_058,
    "Pet_Supplies": 6_542_483,
    "Prime_Pantry": 471_614,
    "Software": 459_436,
    "Sports_and_Outdoors": 12_980_837,
    "Tools_and_Home_Improvement": 9_015_203,
    "Toys_and_Games": 8_201_231,
    "Video_Games": 2_565_349,
}

_REVIEWS_2023 = {
    "All_Beauty": 701_500,
    "Amazon_Fashion": 2_500_000,
    "Appliances": 2_100_000,
    "Arts_Crafts_and_Sewing": 9_000_000,
    "Automotive": 20_000_000,
    "Baby_Products": 6_000_000,
    "Beauty_and_Personal_Care": 23_900_000,
    "Books": 29_500_000,
    "CDs_and_Vinyl": 4_800_000,
    "Cell_Phones_and_Accessories": 20_800_000,
    "Clothing_Shoes_and_Jewelry": 66_000_000,
    "Digital_Music": 130_400,
    "Electronics": 43_900_000,
    "Gift_Cards": 152_400,
    "Grocery_and_Gourmet_Food": 14_300_000,
    "Handmade_Products": 664_200,
    "Health_and_Household": 25_600_000,
    "Health_and_Personal_Care": 494_100,
    "Home_and_Kitchen": 67_400_000,
    "Industrial_and_Scientific": 5_200_000,
    "Kindle_Store": 25_600_000,
    "Magazine_Subscriptions": 71_500,
    "Movies_and_TV": 17_300_000,
    "Musical_Instruments": 3_000_000,
    "Office_Products": 12_800_000,
    "Patio_Lawn_and_Garden": 16_500_000,
    "Pet_Supplies": 16_800_000,
    "Software": 4_900_000,
    "Sports_and_Outdoors": 19_600_000,
    "Subscription_Boxes": 16_200,
    "Tools_and_Home_Improvement": 27_000_000,
    "Toys_and_Games": 16_300_000,
    "Unknown": 63_800_000,
    "Video_Games": 4_600_000,
}

RELEASES = {
    "2018": Release(
        "every review of the 2018 release, by category",
        f"{_HOME}/amazon_v2/categoryFiles/{{category}}.json.gz",
        dict(_REVIEWS_2018),
    ),
    "2018-5core": Release(
        "2018, only users and items with at least 5 reviews",
        f"{_HOME}/amazon_v2/categoryFilesSmall/{{category}}_5.json.gz",
        dict.fromkeys(_REVIEWS_2018),
    ),
    "2023": Release(
        "every review of the 2023 release, by category",
        f"{_HOME}/amazon_2023/raw/review_categories/{{category}}.jsonl.gz",
        dict(_REVIEWS_2023),
    ),
}
