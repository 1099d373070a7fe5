package cli

import (
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/topo/rack"
)

// What is wrong with a node or link and is no fault rule is named with the command that ends it.
func TestWhatHealDoesNotEndIsNamed(t *testing.T) {
	host := func(name string, state rack.State, link rack.LinkState) rack.NodeStatus {
		return rack.NodeStatus{Name: name, Role: "compute", State: state, Link: link}
	}
	s := rack.Status{
		Switches: []rack.NodeStatus{{Name: "leaf0", Role: "switch", State: rack.StateCrashed}, {Name: "leaf1", Role: "switch", State: rack.StateHung}, {Name: "spine0", Role: "switch", State: rack.StateUp}},
		Hosts: []rack.NodeStatus{
			host("up", rack.StateUp, rack.LinkUp), host("cut", rack.StateCut, rack.LinkDown), host("crashed", rack.StateCrashed, rack.LinkMissing),
			host("hung", rack.StateHung, rack.LinkNoCarrier), host("both", rack.StateHung, rack.LinkDown), host("silent", rack.StateSilent, rack.LinkUp),
			host("nic", rack.StateNICDown, rack.LinkUp), host("apps", rack.StateAppHung, rack.LinkUp), host("dead", rack.StateApp, rack.LinkUp),
			host("lost", rack.StateLost, ""), host("plug", rack.StateCut, rack.LinkNoCarrier), host("gone", rack.StateCut, rack.LinkMissing),
			host("up/rxe1", rack.StateNICDown, rack.LinkUp), host("crashed/rxe1", rack.StateCrashed, rack.LinkMissing), host("up/rxe2", rack.StateCut, rack.LinkDown),
		},
		Trunks: []rack.TrunkStatus{{Name: "leaf0-spine0", Link: rack.LinkDown}, {Name: "leaf1-spine0", Link: rack.LinkUp}},
	}
	for name, want := range map[string][]string{
		"spine0": nil, "leaf1-spine0": nil, "leaf0": {"restart leaf0"}, "leaf1": {"resume leaf1"}, "leaf0-spine0": {"link leaf0-spine0 up"},
		"up": {"restart up/rxe1 --nic", "link up/rxe2 up"}, "cut": {"link cut up"}, "crashed": {"restart crashed"}, "hung": {"resume hung"},
		"both": {"resume both", "link both up"}, "silent": {"restart silent"}, "nic": {"restart nic --nic"}, "apps": {"resume apps --app"},
		"dead": {"restart dead --app"}, "lost": {"status"}, "plug": {"restart plug"}, "gone": {"restart gone"},
		"crashed/rxe1": {"restart crashed"}, "up/rxe2": {"link up/rxe2 up"},
	} {
		var got []string
		for _, line := range notFaults(&s, name) {
			got = append(got, regexp.MustCompile("`rdmalab ([^`]*)`").FindStringSubmatch(line)[1])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	all := strings.Join(notFaults(&s, ""), "\n")
	for _, want := range []string{"leaf0: it has crashed", "leaf1: it hangs", "cut: its link is cut", "leaf0-spine0: its link is cut", "up/rxe1: its NIC is down"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in\n%s", want, all)
		}
	}
	for _, state := range []rack.State{rack.StateLost, rack.StateCrashed, rack.StateHung, rack.StateSilent, rack.StateNICDown, rack.StateAppHung, rack.StateApp} {
		if endings[state] == "" {
			t.Errorf("nothing ends %s", state)
		}
	}
	for state, text := range endings { // each names a command that exists, with flags that it has
		checkCommand(t, string(state), text)
	}
	for state, text := range linkEndings {
		checkCommand(t, string(state), text)
	}
}

// checkCommand checks that the command in a text is understood, up to the point where it needs a rack.
func checkCommand(t *testing.T, about, text string) {
	t.Helper()
	t.Setenv(rackEnv, missingRack)
	words := strings.Fields(strings.Split(strings.ReplaceAll(text, "NODE", "cn0"), "`")[1])[1:]
	root := rootCmd(commands()...)
	root.SetOut(io.Discard)
	root.SetArgs(words)
	if err := execute(t.Context(), root); err == nil || isUse(err) {
		t.Errorf("%s: %q: %v", about, words, err)
	}
}
