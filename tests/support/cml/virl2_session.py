"""A whole session of Cisco's client library with a server; run by the interpreter that has the library.

Arguments: the server's URL, user name, password. Prints the results as one JSON object.
"""

from __future__ import annotations

import importlib.metadata
import json
import logging
import sys
import warnings

LAB = """
lab:
  version: 0.2.2
  title: Small lab
  description: two hosts on a switch
  notes: ""
nodes:
  - {id: n0, label: sw0, node_definition: unmanaged_switch, x: 0, y: 0, configuration: "", tags: [],
     interfaces: [{id: i0, type: physical, slot: 0, label: port0}, {id: i1, type: physical, slot: 1, label: port1}]}
  - {id: n1, label: host1, node_definition: alpine, x: -100, y: 0, configuration: hostname host1, tags: [],
     interfaces: [{id: i0, type: physical, slot: 0, label: eth0}]}
  - {id: n2, label: host2, node_definition: alpine, x: 100, y: 0, configuration: hostname host2, tags: [],
     interfaces: [{id: i0, type: physical, slot: 0, label: eth0}]}
links:
  - {id: l0, n1: n0, i1: i0, n2: n1, i2: i0}
  - {id: l1, n1: n0, i1: i1, n2: n2, i2: i0}
"""


def main(url: str, username: str, password: str) -> dict[str, object]:
    from virl2_client import ClientLibrary  # type: ignore[import-not-found]  # it has an environment of its own
    from virl2_client.exceptions import LabNotFound  # type: ignore[import-not-found]

    seen: dict[str, object] = {"client": importlib.metadata.version("virl2_client")}
    client = ClientLibrary(url, username, password, ssl_verify=False, raise_for_auth_failure=True)
    seen["server"] = client.system_info()["version"]
    seen["labs_before"] = client.get_lab_list(show_all=True)
    lab = client.import_lab(LAB, title="Small lab")
    lab.auto_sync_interval = 0  # otherwise the library uses its cache for a second
    lab.wait_max_iterations, lab.wait_time = 3000, 0.1
    seen["listed"] = client.get_lab_list(show_all=True) == [lab.id]
    seen["title"] = lab.title
    seen["new"] = states(lab)
    lab.start(wait=True)
    seen["started"] = states(lab)
    seen["lab_state"] = lab.state()
    node = lab.get_node_by_label("host1")
    node.stop(wait=True)
    node.wipe(wait=True)
    seen["one_wiped"] = states(lab)
    node.start(wait=True)
    seen["one_started"] = node.state
    lab.sync_layer3_addresses()
    seen["addresses"] = sum(bool(face.discovered_ipv4) for node in lab.nodes() for face in node.interfaces())
    lab.stop(wait=True)
    seen["stopped"] = states(lab)
    lab.wipe(wait=True)
    seen["wiped"] = states(lab)
    lab_id = lab.id
    lab.remove()
    seen["labs_after"] = client.get_lab_list(show_all=True)
    try:
        client.join_existing_lab(lab_id)
    except LabNotFound:
        seen["not_found"] = True
    licensing = client.licensing
    seen["license_before"] = licensing.status()["registration"]["status"]
    licensing.wait_interval = 0.2
    licensing.max_wait = 300
    licensing.register_wait(token="GoodToken")
    seen["license_registered"] = licensing.status()["registration"]["status"]
    licensing.register_renew()
    licensing.renew_authorization()
    licensing.deregister()
    seen["license_after"] = licensing.status()["registration"]["status"]
    licensing.set_product_license("CML_Personal")
    seen["product"] = licensing.status()["product_license"]["active"]
    licensing.set_default_transport()
    seen["definitions"] = "alpine" in [entry["id"] for entry in client.definitions.node_definitions()]
    seen["health"] = client.get_system_health()["valid"]
    seen["computes"] = len(client.get_system_stats()["computes"])
    return seen


def states(lab: object) -> list[str]:
    lab.sync_states()  # type: ignore[attr-defined]  # the library is not in the environment that checks types
    return sorted(node.state for node in lab.nodes())  # type: ignore[attr-defined]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    print(json.dumps(main(*sys.argv[1:])))
