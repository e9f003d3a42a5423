import logging

import pytest

from router.config import RouterSettings
from router.config_error import ConfigError
from router.object_stores import check_object_stores

MIB = 2**20
SETTINGS = RouterSettings(replicas=2, embedding_store_bytes=100 * MIB, in_flight_bytes=50 * MIB)


def node(store: int, *, cpus: float = 1, alive: bool = True) -> dict:
    # Ray leaves resources out that a node has none of.
    resources = {"object_store_memory": float(store)} | ({"CPU": cpus} if cpus else {})
    return {"Alive": alive, "Resources": resources}


def test_a_sum_that_one_machine_cannot_hold_is_refused():
    check_object_stores(SETTINGS, [node(200 * MIB)])
    with pytest.raises(ConfigError, match=r"args\.router: .*209,715,200 of 209,715,199 bytes"):
        check_object_stores(SETTINGS, [node(200 * MIB - 1), node(900 * MIB, alive=False)])


def test_a_cluster_may_still_grow():
    check_object_stores(SETTINGS, [node(10 * MIB, cpus=0)])
    check_object_stores(SETTINGS, [node(10 * MIB), node(10 * MIB)])


def test_the_sum_is_told(caplog):
    logging.getLogger("ray.serve").propagate = True
    with caplog.at_level(logging.INFO, "ray.serve"):
        check_object_stores(SETTINGS, [node(300 * MIB), node(100 * MIB), node(900 * MIB, cpus=0)])
    assert "209,715,200 of 419,430,400" in caplog.text
    assert "the smallest has 104,857,600" in caplog.text


def test_nodes_that_each_hold_the_sum_are_no_warning(caplog):
    logging.getLogger("ray.serve").propagate = True
    with caplog.at_level(logging.WARNING, "ray.serve"):
        check_object_stores(SETTINGS, [node(200 * MIB), node(300 * MIB)])
    assert caplog.text == ""
