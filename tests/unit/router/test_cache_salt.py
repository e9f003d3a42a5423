from router.cache_salt import with_tenants_salt


def test_where_all_are_one_tenant_the_clients_salt_is_its_own():
    assert with_tenants_salt({"a": 1}, "") == {"a": 1}
    assert with_tenants_salt({"cache_salt": "x"}, "") == {"cache_salt": "x"}


def test_no_salt_of_a_client_reaches_another_tenants_cache():
    tenants, salts = ("a", "b", "a-b"), (None, "", "x", "b:x", ":x", "a:b:x")
    found = {
        (tenant, with_tenants_salt({"cache_salt": salt}, tenant)["cache_salt"]) for tenant in tenants for salt in salts
    }
    assert len({salt for _, salt in found}) == len(found)
    for tenant, salt in found:
        assert salt.partition(":")[0] == tenant
