package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
)

// down --all removes the racks only after y or yes; everything else, also no answer, means no.
func TestDownAsks(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "YES\n": true, " yes": true, "n\n": false, "\n": false, "": false, "yess\n": false, strings.Repeat("y", 1000): false} {
		var out bytes.Buffer
		cmd := downCmd()
		cmd.SetIn(strings.NewReader(answer))
		cmd.SetOut(&out)
		got, err := agreed(cmd, []string{"a", "b"})
		if err != nil || got != want || !strings.Contains(out.String(), "removes 2 racks: a, b\n") || want == strings.Contains(out.String(), "nothing was removed") {
			t.Errorf("%q: %v, %v, %q", answer, got, err, &out)
		}
	}
	if onTerminal(strings.NewReader("")) {
		t.Error("a text is a terminal")
	}
	if _, err := run(t, "down", "--yes"); !isUse(err) {
		t.Errorf("down --yes: %v", err)
	}
}

// Off a terminal, down --all removes nothing without --yes: a script, or an answer through a pipe, does not take the
// racks of others.
func TestDownAllOffATerminal(t *testing.T) {
	state := filepath.Join(rackfile.StateRoot, "down-all-test")
	made := os.MkdirAll(state, 0o755) == nil
	defer os.RemoveAll(state)
	cmd := downCmd()
	cmd.SetIn(strings.NewReader("n\n"))
	err := removeAll(cmd, []removal{{name: "down-all-test", text: "down-all-test"}}, false, false) // names no rack of others
	if !isUse(err) || !strings.Contains(err.Error(), "down-all-test") || !strings.Contains(err.Error(), "rdmalab down --all --yes") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(state); made && err != nil {
		t.Errorf("the rack is gone: %v", err)
	}
}

// Each rack is removed by itself and is in the question; the slice that this machine has of a rack on several
// goes with it.
func TestDownAllRemoves(t *testing.T) {
	far := []foundRack{{"a", []string{"m1", "m2"}, 7}, {"b", []string{"m1"}, 8}, {"c", []string{"m3"}, 9}, {"d", nil, 0}}
	own := []foundRack{{"a", nil, 0}, {"b", nil, 8}, {"c", nil, 5}, {"d", nil, 0}, {"e", nil, 0}}
	want := []removal{
		{name: "a", text: "a on m1 m2", far: true},
		{name: "b", text: "b on m1", far: true, slice: true},
		{name: "c", text: "c on m3", far: true},
		{name: "d", text: "d (remains)", far: true},
		{name: "a", text: "a of this machine", beside: true},
		{name: "c", text: "c of this machine", beside: true},
		{name: "d", text: "d of this machine", beside: true},
		{name: "e", text: "e"},
	}
	if got := removals(far, own); !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
	if got := removals(nil, nil); len(got) != 0 {
		t.Errorf("%+v of nothing", got)
	}
}
