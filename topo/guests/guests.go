// Package guests reads and writes the files that describe a rack's guests: containers that the CNI
// plugin has plugged into the switch while the rack was up. Each guest is a file in the rack's
// state folder. After a restart, the switch finds its ports by these files. A process can remove a
// guest that another process has added. Package topo/rack makes the links and ports.
package guests

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/rackfile"
)

// suffix is the end of the files' names.
const suffix = ".json"

// Guest is a host that joined the rack while it was up. Its role is rackfile.Guest.
type Guest struct {
	rackfile.Host
	// Network is the name of the CNI network. Container is the ID that the runtime gave the
	// container. Ifname is the interface in it. Container and Ifname together identify an
	// attachment.
	Network   string `json:"network"`
	Container string `json:"container"`
	Ifname    string `json:"ifname"`
	// Netns is the path of the network namespace when the guest joined.
	Netns string `json:"netns"`
}

// Of reports whether g is the attachment of this interface of a container to a network.
func (g *Guest) Of(network, container, ifname string) bool {
	return g.Network == network && g.Container == container && g.Ifname == ifname
}

// List reads the guests of a rack, in the order of their addresses. A file that does not describe a
// guest is an error; a file that is removed at the same time is not.
func List(paths rackfile.Paths) ([]Guest, error) {
	entries, err := os.ReadDir(paths.Guests())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("guests: %w", err)
	}
	var list []Guest
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) {
			continue // a file that is being written
		}
		b, err := os.ReadFile(filepath.Join(paths.Guests(), e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("guests: %w", err)
		}
		g, err := decode(b)
		if err == nil && g.Name+suffix != e.Name() {
			err = fmt.Errorf("it is about %s", g.Name) // removing the guest that the file describes would leave the file
		}
		if err != nil {
			return nil, fmt.Errorf("guest %s: %w; remove the file", filepath.Join(paths.Guests(), e.Name()), err)
		}
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b Guest) int { return a.IPv4.Compare(b.IPv4) })
	return list, nil
}

func decode(b []byte) (Guest, error) {
	var g Guest
	if err := json.Unmarshal(b, &g); err != nil {
		return g, err
	}
	if err := rackfile.CheckHostName(g.Name); err != nil {
		return g, err
	}
	if g.Port == "" || !g.IPv4.IsValid() || g.Container == "" || g.Ifname == "" {
		return g, errors.New("port, address, container or interface is missing")
	}
	return g, nil
}

// Load reads the description of a rack, with its guests as the last hosts. The error is
// fs.ErrNotExist if the rack is not up.
func Load(paths rackfile.Paths) (*rackfile.Rack, error) { return (*Reader)(nil).Load(paths) }

// Write writes the file of a guest atomically.
func Write(paths rackfile.Paths, g *Guest) error {
	b, err := json.MarshalIndent(g, "", "  ")
	if err != nil {
		return fmt.Errorf("guest %s: %w", g.Name, err)
	}
	file := paths.Guest(g.Name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("guest %s: %w", g.Name, err)
	}
	part := strings.TrimSuffix(file, suffix) + ".part"
	if err := os.WriteFile(part, append(b, '\n'), 0o644); err != nil {
		return errors.Join(fmt.Errorf("guest %s: %w", g.Name, err), os.Remove(part))
	}
	if err := os.Rename(part, file); err != nil {
		return fmt.Errorf("guest %s: %w", g.Name, err)
	}
	return nil
}

// Remove removes the file of a guest; it returns no error if there is none.
func Remove(paths rackfile.Paths, name string) error {
	if err := os.Remove(paths.Guest(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("guest %s: %w", name, err)
	}
	return nil
}
