"""The settings: defaults, the environment, and sentences for what makes no sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from hai_flow.primitives.hosts import is_loopback
from hai_flow.settings import Settings, SettingsError, describe


def problems_of(**environment: str) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as refused:
        Settings.from_environment(environment)
    return refused.value.problems


def test_an_empty_environment_gives_an_embedded_database_on_loopback() -> None:
    settings = Settings.from_environment({})
    assert settings.database_url is None
    assert settings.data_dir == Path(".hai-flow")
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert settings == Settings()


def test_every_setting_can_be_given_as_its_default_and_is_documented() -> None:
    given = {name: default for name, default, meaning in describe() if default and meaning}
    assert Settings.from_environment(given) == Settings()
    assert all(meaning.endswith((".", "...")) for _, _, meaning in describe())


def test_values_are_read_as_what_they_mean() -> None:
    settings = Settings.from_environment(
        {
            "HAI_FLOW_DATA_DIR": "/srv/hai",
            "HAI_FLOW_PORT": "9000",
            "HAI_FLOW_CHUNK_FLUSH_SECONDS": "0.1",
            "HAI_FLOW_HAI_SNAPSHOT": "MESSAGES_SNAPSHOT",
            "HAI_FLOW_ALLOWED_ORIGINS": "https://a.example, http://localhost:3000",
        }
    )
    assert settings.data_dir == Path("/srv/hai")
    assert settings.port == 9000
    assert settings.chunk_flush_seconds == 0.1
    assert settings.hai_snapshot == "MESSAGES_SNAPSHOT"
    assert settings.allowed_origins == ("https://a.example", "http://localhost:3000")


@pytest.mark.parametrize("alias", ["chat", "/chat/", "/a{b}", "/chat=", "/", "/chat=a=b", "/a b"])
def test_an_alias_is_a_path_and_maybe_a_workflow(alias: str) -> None:
    (problem,) = problems_of(HAI_FLOW_HAI_ALIASES=f"/ok,/task=plan,{alias}")
    assert alias in problem


def test_an_empty_variable_counts_as_unset() -> None:
    assert Settings.from_environment({"HAI_FLOW_PORT": " "}).port == 8000


def test_dev_has_a_default_workflow_and_others_have_none() -> None:
    assert Settings.from_environment({}, dev=True).default_workflow == "chat"
    assert Settings.from_environment({"HAI_FLOW_DEFAULT_WORKFLOW": "x"}, dev=True).default_workflow == "x"
    assert Settings.from_environment({}).default_workflow is None


def test_all_mistakes_are_reported_at_once() -> None:
    problems = problems_of(HAI_FLOW_PORT="many", HAI_FLOW_LANES="0", HAI_FLOW_ALLOW_REMOTE="perhaps")
    assert len(problems) == 3
    assert "HAI_FLOW_PORT: expected a whole number, found 'many'." in problems
    assert "HAI_FLOW_LANES: expected 1 to 16, found 0." in problems


ASKED = {"HAI_FLOW_ALLOWED_HOSTS": "flow.example.com", "HAI_FLOW_IDENTITY": "keys"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.com"])
def test_listening_beyond_this_machine_is_refused_unless_it_is_asked_for(host: str) -> None:
    (problem,) = problems_of(HAI_FLOW_HOST=host)
    assert "HAI_FLOW_ALLOW_REMOTE=1" in problem
    remote = {"HAI_FLOW_HOST": host, "HAI_FLOW_ALLOW_REMOTE": "1", **ASKED}
    assert Settings.from_environment(remote).host == host


def test_listening_beyond_this_machine_needs_the_servers_names() -> None:
    (problem,) = problems_of(HAI_FLOW_ALLOW_REMOTE="1", HAI_FLOW_IDENTITY="keys")
    assert "expected HAI_FLOW_ALLOWED_HOSTS as well" in problem


def test_nobody_listens_beyond_this_machine_who_believes_everybody() -> None:
    (problem,) = problems_of(HAI_FLOW_ALLOW_REMOTE="1", HAI_FLOW_ALLOWED_HOSTS="flow.example.com")
    assert "expected HAI_FLOW_IDENTITY as well" in problem


def test_a_key_is_not_repeated() -> None:
    assert "hai_x" not in repr(Settings(key="hai_x"))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_permission(host: str) -> None:
    assert is_loopback(host)
    assert Settings(host=host).host == host


def test_a_heartbeat_too_slow_for_the_lease_is_refused() -> None:
    (problem,) = problems_of(HAI_FLOW_LEASE_SECONDS="10")
    assert "HAI_FLOW_HEARTBEAT_SECONDS: expected at most a third" in problem


@pytest.mark.parametrize("origin", ["*", "https://*.example.com", "app.example.com", "https://a.example/page"])
def test_an_origin_that_is_none_is_refused(origin: str) -> None:
    (problem,) = problems_of(HAI_FLOW_ALLOWED_ORIGINS=origin)
    assert origin in problem


@pytest.mark.parametrize("host", ["*", "a.example:80", "a.example/x"])
def test_an_allowed_host_that_is_no_name_is_refused(host: str) -> None:
    (problem,) = problems_of(HAI_FLOW_ALLOWED_HOSTS=host)
    assert host in problem


def test_not_a_number_is_out_of_bounds() -> None:
    (problem,) = problems_of(HAI_FLOW_POLL_SECONDS="nan")
    assert "HAI_FLOW_POLL_SECONDS" in problem


def test_a_misspelt_setting_is_pointed_out_and_a_foreign_one_left_alone() -> None:
    (problem,) = problems_of(HAI_FLOW_LEASE_SECOND="30")
    assert "did you mean HAI_FLOW_LEASE_SECONDS?" in problem
    Settings.from_environment({"HAI_FLOW_TEST_DATABASE_URL": "postgresql://x/y", "PORT": "x"})


def test_a_password_is_never_shown() -> None:
    assert "hunter2" not in repr(Settings(database_url="postgresql://u:hunter2@h/d"))
    (problem,) = problems_of(HAI_FLOW_DATABASE_URL="mysql://u:hunter2@h/d")
    assert "hunter2" not in problem
    (problem,) = problems_of(HAI_FLOW_DATABASE_URL="postgresql://u:hunter2/3@h/d")
    assert "hunter2" not in problem


@pytest.mark.parametrize("name", ["HAI_FLOW_DATABASE_URL", "HAI_FLOW_DATABASE_DIRECT_URL"])
@pytest.mark.parametrize("port", ["65536", "99999999999999999999", "0", "abc", "5432,other:70000", "-1"])
def test_a_port_that_can_not_be_is_a_sentence(name: str, port: str) -> None:
    given = {"HAI_FLOW_DATABASE_URL": "postgresql://h/d", name: f"postgresql://u:hunter2@h:{port}/d"}
    (problem,) = problems_of(**given)
    assert problem == f"{name}: expected a port from 1 to 65535 behind the host."


def test_an_address_that_is_cut_off_is_a_sentence() -> None:
    for name, url in (("HAI_FLOW_DATABASE_URL", "postgresql://u@[::1/d"), ("HAI_FLOW_URL", "http://[::1")):
        (problem,) = problems_of(**{name: url})
        assert problem.startswith(f"{name}: expected a host")
    (problem,) = problems_of(HAI_FLOW_URL="http://localhost:99999")
    assert problem == "HAI_FLOW_URL: expected a port from 1 to 65535 behind the host."
    (problem,) = problems_of(HAI_FLOW_ALLOWED_ORIGINS="https://[::1")
    assert problem.endswith("found 'https://[::1'.")


@pytest.mark.parametrize(
    "url",
    ["postgresql:///d?host=/tmp", "postgresql://u@[::1]:5432/d", "postgresql://a:1,b:2/d", "postgresql://u:p%40@h:/d"],
)
def test_what_postgresql_takes_as_a_place_is_taken(url: str) -> None:
    assert Settings(database_url=url).database_url == url


def test_what_may_be_secret_is_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("postgresql://ann:secret@db/flow\n")
    settings = Settings.from_environment({"HAI_FLOW_DATABASE_URL_FILE": str(file)})
    assert settings.database_url == "postgresql://ann:secret@db/flow"


def test_an_absent_secret_file_is_a_sentence_and_no_unset_setting(tmp_path: Path) -> None:
    (problem,) = problems_of(HAI_FLOW_DATABASE_URL_FILE=str(tmp_path / "url"))
    assert problem.startswith("HAI_FLOW_DATABASE_URL_FILE: ")
    assert problem.endswith("can't be read: No such file or directory.")
    (tmp_path / "url").write_text("\n")
    (problem,) = problems_of(HAI_FLOW_DATABASE_URL_FILE=str(tmp_path / "url"))
    assert problem.endswith("is empty.")
    (tmp_path / "url").write_bytes(b"\xff")
    (problem,) = problems_of(HAI_FLOW_DATABASE_URL_FILE=str(tmp_path / "url"))
    assert problem.endswith("can't be read: it is not UTF-8.")


def test_a_secret_is_given_once_and_its_files_faults_are_not_quoted(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("mysql://ann:secret@db/flow")
    (problem,) = problems_of(HAI_FLOW_DATABASE_URL_FILE=str(file))
    assert problem == "HAI_FLOW_DATABASE_URL: expected postgresql://user@host/database."
    (problem,) = problems_of(HAI_FLOW_DATABASE_URL_FILE=str(file), HAI_FLOW_DATABASE_URL="postgresql://ann@db/flow")
    assert problem == "HAI_FLOW_DATABASE_URL_FILE: expected either it or HAI_FLOW_DATABASE_URL, found both."
    (problem,) = problems_of(HAI_FLOW_DATABASE_URI_FILE=str(file))
    assert problem == "HAI_FLOW_DATABASE_URI_FILE: unknown; did you mean HAI_FLOW_DATABASE_URL_FILE?"


def test_what_is_no_secret_has_no_file(tmp_path: Path) -> None:
    (tmp_path / "port").write_text("9000")
    assert Settings.from_environment({"HAI_FLOW_PORT_FILE": str(tmp_path / "port")}).port == 8000
