package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// run runs the command line and returns what it printed.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := rootCmd(commands()...)
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// missingRack is the name of a rack that is never up.
const missingRack = "no-such-rack"

func TestEveryCommandIsExplained(t *testing.T) {
	for _, c := range commands() {
		if c.Hidden {
			continue
		}
		out, err := run(t, c.Name(), "--help")
		_, example, _ := strings.Cut(out, "Examples:")
		if err != nil || c.Short == "" || !strings.Contains(example, "rdmalab "+c.Name()) {
			t.Errorf("%s has no description, or no example that calls it: %v\n%s", c.Name(), err, out)
		}
	}
}

func TestCommandsAreThere(t *testing.T) {
	var names []string
	for _, c := range commands() {
		names = append(names, c.Name())
	}
	for _, want := range []string{"up", "down", "status", "exec", "crash", "hang", "resume", "restart", "link", "partition", "logs", "version"} {
		if !slices.Contains(names, want) {
			t.Errorf("no command %s in %v", want, names)
		}
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	badFile := filepath.Join(t.TempDir(), "rack.yaml")
	if err := os.WriteFile(badFile, []byte("name: a\nhosts:\n  - name: x\n    rolle: compute\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"status"}, "run `rdmalab up`"},
		{[]string{"crash", "cn0"}, "run `rdmalab up`"},
		{[]string{"exec", "cn0", "--", "true"}, "run `rdmalab up`"},
		{[]string{"logs"}, "run `rdmalab up`"},
		{[]string{"partition", "cn0"}, "run `rdmalab up`"},
		{[]string{"crash"}, "write: rdmalab crash HOST"},
		{[]string{"exec", "cn0"}, "write: rdmalab exec HOST"},
		{[]string{"crash", "cn0", "--app", "--nic"}, "[app nic]"},
		{[]string{"hang", "cn0", "--for", "0s"}, "use a time above 0"},
		{[]string{"hang", "cn0", "--for", "10"}, "see `rdmalab hang --help`"},
		{[]string{"hang", "cn0", "--for", "25h"}, "at most 24h"},
		{[]string{"link", "cn0", "sideways"}, "use up or down"},
		{[]string{"link", "cn0", "up", "--for", "1s"}, "down only"},
		{[]string{"partition", "--mend", "cn0"}, "nothing else"},
		{[]string{"status", "-o", "xml"}, "use table, json, yaml, csv or jsonpath=EXPRESSION"},
		{[]string{"perf", "write_bw", "--from", "cn0", "--to", "ms0", "--retry", "0"}, "--retry 0: use a larger value"},
		{[]string{"status", "--bogus"}, "see `rdmalab status --help`"},
		{[]string{"up", "-f", badFile}, badFile + ":4:5: unknown key \"rolle\""},
		{[]string{"up", "-f", badFile + "x"}, "no such file"},
		{[]string{"bogus"}, "unknown command"},
	} {
		_, err := run(t, append(c.args[:len(c.args):len(c.args)], "--rack", missingRack)...)
		if c.args[0] == "exec" {
			_, err = run(t, append([]string{"--rack", missingRack}, c.args...)...)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v; want %q", c.args, err, c.want)
		}
	}
	if _, err := run(t, "status", "--rack", "../x"); err == nil || !strings.Contains(err.Error(), "rack name") {
		t.Errorf("a path as rack name: %v", err)
	}
}

func TestDownOfNothing(t *testing.T) {
	out, err := run(t, "down", "--rack", missingRack)
	if err != nil || !strings.Contains(out, "is not up") {
		t.Errorf("down: %q, %v", out, err)
	}
}

func TestVersion(t *testing.T) {
	out, err := run(t, "version", "-o", "json")
	var v versionInfo
	if err != nil || json.Unmarshal([]byte(out), &v) != nil || v.Go == "" || v.Kernel == "" {
		t.Errorf("version: %q, %v", out, err)
	}
}

func TestRackNameComesFromFlagOrFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rack.yaml")
	if err := os.WriteFile(file, []byte("name: of-file\nhosts:\n  - {name: x, role: compute}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ env, flag, want string }{
		{"", "", "of-file"}, {"of-env", "", "of-env"}, {"of-env", "of-flag", "of-flag"},
	} {
		t.Setenv(rackEnv, c.env)
		up := upCmd()
		root := rootCmd(up)
		if c.flag != "" {
			if err := root.PersistentFlags().Set("rack", c.flag); err != nil {
				t.Fatal(err)
			}
		}
		if err := up.ParseFlags(nil); err != nil {
			t.Fatal(err)
		}
		s, err := readRack(up, file)
		if err != nil || s.Name != c.want {
			t.Errorf("%+v: %+v, %v", c, s, err)
		}
	}
}

func TestGroups(t *testing.T) {
	s, err := rackfile.Parse([]byte("name: a\nhosts:\n  - {name: ms0, role: memory}\n  - {name: \"cn[0-2]\", role: compute}\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := &rack.Rack{Spec: s}
	for args, want := range map[string]string{
		"cn0,cn1 ms0": "kept apart: cn0,cn1 | ms0",
		"cn[0-1]":     "kept apart: cn0,cn1 | ms0,cn2",
		"cn0,cn0":     "kept apart: cn0 | ms0,cn1,cn2",
		"cn0 ms0,cn0": "cn0 is in two groups",
		"cn[0-2],ms0": "these are all hosts",
		"cn9":         `no host "cn9"; its hosts: ms0 cn0 cn1 cn2`,
		"cn0,":        `no host ""`,
		"cn[0-":       "unmatched bracket",
		"":            "name a group of hosts",
	} {
		groups, err := parseGroups(r, strings.Fields(args))
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = describe(s, groups)
		}
		if !strings.Contains(got, want) {
			t.Errorf("partition %s: %s; want %s", args, got, want)
		}
	}
}

func TestStatusTable(t *testing.T) {
	var out bytes.Buffer
	s := rack.Status{
		Switch: rack.NodeStatus{Name: "switch", Role: "switch", State: rack.StateUp, PID: 7},
		Hosts:  []rack.NodeStatus{{Name: "cn0", Role: "compute", State: rack.StateCrashed, Link: rack.LinkNoCarrier}},
	}
	if err := printStatus(&out, s); err != nil {
		t.Fatal(err)
	}
	want := `NAME    ROLE     STATE    ADDRESS  IPV6  MAC                MEMORY  LINK        PID
switch  switch   up       -        -     -                  -       -           7
cn0     compute  crashed  -        -     00:00:00:00:00:00  -       no-carrier  -
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	// Network devices follow the nodes.
	out.Reset()
	s.Devices = []rack.DeviceStatus{{Name: "out", Ifname: "eth1", Switch: "switch", Link: rack.LinkUp}, {Name: "eth2", Ifname: "eth2", Switch: "switch", Link: rack.LinkMissing}}
	if err := printStatus(&out, s); err != nil || out.String() != want+"\nout: device eth1 as a port of switch, up\neth2: device eth2 as a port of switch, missing\n" {
		t.Errorf("%v\n%s", err, &out)
	}
	s.Devices = nil
	// A switch with a program that makes connections has addresses.
	out.Reset()
	s.Switch.Program, s.Switch.IPv4 = rackfile.ProgramSwordBox, netip.MustParseAddr("10.77.0.1")
	if err := printStatus(&out, s); err != nil || !strings.Contains(out.String(), "10.77.0.1") {
		t.Errorf("%v\n%s", err, &out)
	}
}

func TestLogs(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "cn0.log")
	l := &logTail{path: file, prefix: "cn0 "}
	var out bytes.Buffer
	for _, step := range []struct{ add, want string }{
		{"", ""},
		{"one\ntw", "cn0 one\n"},
		{"o\n", "cn0 two\n"},
		{"three", ""},
	} {
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_, werr := f.WriteString(step.add)
		if err := errors.Join(werr, f.Close()); err != nil {
			t.Fatal(err)
		}
		out.Reset()
		if err := l.print(&out); err != nil || out.String() != step.want {
			t.Errorf("after %q: %q, %v; want %q", step.add, out.String(), err, step.want)
		}
	}
	out.Reset()
	if err := printLogs(t.Context(), &out, []*logTail{{path: file}, {path: file + "x"}}, false); err != nil || out.String() != "one\ntwo\nthree\n" {
		t.Errorf("whole log: %q, %v", out.String(), err)
	}
}

func TestCompletion(t *testing.T) {
	for args, want := range map[string]string{
		"link cn0 ":     "down",
		"status -o ":    "json",
		"crash --":      "--nic",
		"res":           "restart",
		"completion ":   "bash",
		"--rack x hang": "hang",
		"prof":          "profile",

		"inject drop --opcode RC_WRITE_L":        "RC_WRITE_LAST\n",
		"inject drop --opcode RC_ACK,RC_WRITE_L": "RC_ACK,RC_WRITE_LAST\n",
		"dump --opcode UD_":                      "UD_SEND_ONLY\n",
	} {
		out, err := run(t, append([]string{cobra.ShellCompRequestCmd}, strings.Split(args, " ")...)...)
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("completion of %q: %q, %v; want %s", args, out, err, want)
		}
	}
}
