package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/rdmalab/rdmalab/kube/cni"
)

// entry is the plugin's entry in a conflist.
type entry struct {
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities"`
}

// conflists is the folder of the node's CNI networks, and bin that of the plugins.
type conflists struct{ dir, bin string }

// errNoNetwork says that the node has no network to chain the plugin to.
var errNoNetwork = errors.New("no file *.conflist is in the folder of CNI networks: install the cluster's network first")

// network returns the file that the runtime takes: the first by name.
func (c conflists) network() (string, error) {
	list, err := os.ReadDir(c.dir)
	if err != nil {
		return "", err
	}
	for _, e := range list { // sorted by name
		switch filepath.Ext(e.Name()) {
		case ".conflist":
			return filepath.Join(c.dir, e.Name()), nil
		case ".conf", ".json":
			return "", fmt.Errorf("the runtime takes %s, which is no list: rename it to *.conflist, with its content in \"plugins\"", e.Name())
		}
	}
	return "", errNoNetwork
}

// chained returns the text of a conflist with the plugin's entry last, and whether that differs from text. on is
// false to take the entry out.
func chained(text []byte, on bool) (out []byte, changed bool, err error) {
	var list map[string]json.RawMessage
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, false, fmt.Errorf("the conflist is no JSON: %w", err)
	}
	var plugins []json.RawMessage
	if err := json.Unmarshal(list["plugins"], &plugins); err != nil || len(plugins) == 0 {
		return nil, false, errors.New("the conflist has no list of plugins")
	}
	own, err := json.Marshal(entry{cni.Program, map[string]bool{cni.Capability: true}})
	if err != nil {
		return nil, false, err
	}
	rest := slices.DeleteFunc(slices.Clone(plugins), func(p json.RawMessage) bool {
		var e entry
		return json.Unmarshal(p, &e) == nil && e.Type == cni.Program
	})
	if on {
		rest = append(rest, own)
	}
	if len(rest) == len(plugins) && sameJSON(rest[len(rest)-1], plugins[len(plugins)-1]) {
		return text, false, nil
	}
	if list["plugins"], err = json.Marshal(rest); err != nil {
		return nil, false, err
	}
	out, err = json.MarshalIndent(list, "", "  ")
	return append(out, '\n'), true, err
}

func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	p, _ := json.Marshal(x) // what was read can be written
	q, _ := json.Marshal(y)
	return bytes.Equal(p, q)
}

// ensure makes the plugin and its entry be there, or not. It reports whether something was wrong, and what.
func (c conflists) ensure(plugin []byte, on bool) (wrong string, err error) {
	path, err := c.network()
	if err != nil {
		return err.Error(), err
	}
	file := filepath.Join(c.bin, cni.Program)
	if on {
		if have, err := os.ReadFile(file); err != nil || !bytes.Equal(have, plugin) {
			wrong = file + " was missing, or another program"
			if err := replace(file, plugin, 0o755); err != nil {
				return wrong, fmt.Errorf("install %s: %w", file, err)
			}
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "the conflist cannot be read", err
	}
	out, changed, err := chained(text, on)
	if err != nil {
		return path, fmt.Errorf("%s: %w", path, err)
	}
	if changed {
		wrong = path + " had no entry " + cni.Program + " as the last of its plugins"
		if err := replace(path, out, 0o644); err != nil {
			return wrong, err
		}
	}
	if !on {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return wrong, nil
}

// replace writes a file in one step. The name of the new file is none that a runtime reads.
func replace(path string, data []byte, mode os.FileMode) error {
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".rdmalab")
	if err := os.WriteFile(tmp, data, mode); err != nil {
		return err
	}
	if err := os.Chmod(tmp, mode); err != nil { // whatever the umask is
		return err
	}
	return os.Rename(tmp, path)
}
