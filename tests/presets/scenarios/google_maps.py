"""Google Maps Platform: Places (New), Routes, and the older services."""

from __future__ import annotations

from tests.presets.cases import Asked, Case, Told

PLACES = Asked(
    path="/v1/places:searchText",
    json={"textQuery": "Spicy Vegetarian Food in Sydney, Australia"},
    headers={"X-Goog-Api-Key": "AIza-first", "X-Goog-FieldMask": "places.displayName"},
)
GEOCODE = Asked(method="GET", path="/maps/api/geocode/json?address=Oslo&key=AIza-first")

CASES = [
    Case(
        rule="places",
        request=PLACES,
        answer=Told(json={"places": [{"displayName": {"text": "Peace Harmony"}}]}),
        safe=True,
        alike=(PLACES.but(headers={"X-Goog-Api-Key": "AIza-second"}), PLACES.but(json={"sessionToken": "a"})),
        different=(
            PLACES.but(headers={"X-Goog-FieldMask": "places.id"}),
            PLACES.but(json={"textQuery": "Pizza"}),
        ),
    ),
    Case(
        rule="routes",
        request=Asked(
            path="/directions/v2:computeRoutes",
            json={"origin": {"address": "Oslo"}, "destination": {"address": "Bergen"}},
            headers={"X-Goog-FieldMask": "routes.duration"},
        ),
        answer=Told(json={"routes": [{"duration": "25000s"}]}),
        safe=True,
    ),
    Case(
        rule="maps",
        request=GEOCODE,
        answer=Told(json={"status": "OK", "results": [{"place_id": "ChIJ"}]}),
        safe=True,
        arguments={"query.address": ["Oslo"]},
        alike=(GEOCODE.but(path="/maps/api/geocode/json?address=Oslo&key=AIza-second"),),
        different=(GEOCODE.but(path="/maps/api/geocode/json?address=Bergen&key=AIza-first"),),
        refused=(Told(json={"status": "OVER_QUERY_LIMIT", "results": []}),),
    ),
]
