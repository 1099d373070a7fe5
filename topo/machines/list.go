package machines

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/rdmalab/rdmalab/rackfile"
)

// List returns the names of the racks whose client this machine is.
func List() ([]string, error) { return listIn(rackfile.StateRoot) }

func listIn(root string) (names []string, err error) {
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		name, client := strings.CutSuffix(e.Name(), rackfile.ClientSuffix)
		if client && e.IsDir() && rackfile.CheckName(name) == nil {
			names = append(names, name)
		}
	}
	return names, nil
}
