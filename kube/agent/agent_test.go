package agent

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/kube/cni"
	"github.com/rdmalab/rdmalab/kube/node"
)

const network = `{"cniVersion":"1.0.0","name":"pod","plugins":[{"type":"bridge","mtu":1450}],"other":{"x":[1]}}`

func typesOf(t *testing.T, text []byte) (list []string) {
	t.Helper()
	var c struct{ Plugins []struct{ Type string } }
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	for _, p := range c.Plugins {
		list = append(list, p.Type)
	}
	return list
}

// The entry becomes the last one, once, and everything else stays; taken out again, the network is as before.
func TestChained(t *testing.T) {
	in, changed, err := chained([]byte(network), true)
	if err != nil || !changed || !slices.Equal(typesOf(t, in), []string{"bridge", cni.Program}) || !strings.Contains(string(in), `"mtu": 1450`) || !strings.Contains(string(in), `"other"`) {
		t.Fatalf("%s, %v, %v", in, changed, err)
	}
	if again, changed, err := chained(in, true); err != nil || changed || string(again) != string(in) {
		t.Errorf("chained twice: %s, %v", again, err)
	}
	out, changed, err := chained(in, false)
	if err != nil || !changed || !sameJSON(out, json.RawMessage(network)) {
		t.Errorf("taken out: %s, %v", out, err)
	}
	if _, changed, err := chained([]byte(network), false); err != nil || changed {
		t.Errorf("nothing to take out: %v, %v", changed, err)
	}
	moved := strings.Replace(network, `[{"type":"bridge"`, `[{"type":"`+cni.Program+`"},{"type":"bridge"`, 1)
	if in, changed, err := chained([]byte(moved), true); err != nil || !changed || !slices.Equal(typesOf(t, in), []string{"bridge", cni.Program}) {
		t.Errorf("an entry that is not last: %s, %v, %v", in, changed, err)
	}
	for _, bad := range []string{"", "{", "[]", "{}", `{"plugins":[]}`, `{"plugins":{}}`, "null"} {
		if _, _, err := chained([]byte(bad), true); err == nil {
			t.Errorf("%q is a network", bad)
		}
	}
}

// The agent reports what others damage, repairs what it can, offers nothing while it cannot; and goes without a trace,
// unless a rack is on the node.
func TestAgent(t *testing.T) {
	dir := t.TempDir()
	list, plugin := filepath.Join(dir, "10-pod.conflist"), filepath.Join(dir, "plugin")
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(list, network)
	write(plugin, "a program")
	var said []string
	s := node.State(filepath.Join(dir, "state"))
	cfg := Config{
		Net: dir, Bin: t.TempDir(), Kubelet: t.TempDir(), State: s, Plugin: plugin, NICs: 3, Log: slog.New(slog.DiscardHandler),
		Report: func(_ context.Context, wrong string) { said = append(said, wrong) },
	}
	a := newAgent(cfg, []byte("a program"))
	step := func(first bool, nics int, reports ...string) {
		t.Helper()
		said = nil
		a.step(t.Context(), first)
		for _, d := range a.offers {
			if have, _ := d.list(); len(have) != nics {
				t.Errorf("%d of %s, want %d", len(have), d.of.name, nics)
			}
		}
		if len(said) != len(reports) {
			t.Fatalf("reports %q, want %q", said, reports)
		}
		for i := range said {
			if !strings.Contains(said[i], reports[i]) || reports[i] == "" && said[i] != "" {
				t.Errorf("report %q, want %q", said[i], reports[i])
			}
		}
	}
	step(true, 3)
	step(false, 3)
	write(list, network)
	step(false, 3, "had no entry")
	step(false, 3, "")
	write(filepath.Join(cfg.Bin, cni.Program), "another")
	step(false, 3, "another program")
	step(false, 3, "")
	write(list, "{")
	step(false, 0, "is no JSON")
	step(false, 0)
	write(list, network)
	step(false, 3, "had no entry")
	step(false, 3, "")
	if err := os.Remove(list); err != nil {
		t.Fatal(err)
	}
	step(false, 0, "install the cluster's network first")
	write(list, network)
	step(false, 3, "had no entry")

	if err := s.Rack("lab", "r0").Put(node.Leaves, node.LeafName, node.Record{}); err != nil {
		t.Fatal(err)
	}
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(list); !strings.Contains(string(text), cni.Program) {
		t.Error("the agent has taken the plugin away from a rack")
	}
	if err := s.Rack("lab", "r0").Drop(node.Leaves, node.LeafName); err != nil {
		t.Fatal(err)
	}
	if err := s.Rack("lab", "r0").Prune(); err != nil {
		t.Fatal(err)
	}
	if err := a.end(); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(list); !sameJSON(text, json.RawMessage(network)) {
		t.Errorf("the network is not as it was: %s", text)
	}
	if _, err := os.Stat(filepath.Join(cfg.Bin, cni.Program)); !os.IsNotExist(err) {
		t.Error("the plugin is still there")
	}
}
