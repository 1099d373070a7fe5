package guests

import (
	"bytes"
	"os"
	"slices"
	"sync"

	"github.com/rdmalab/rdmalab/rackfile"
)

// Reader reads the description of one rack again and again, for many hosts, and decodes it only when it has
// changed. What it returns has its hosts in common with what it has returned before, so its users do not
// change them. It may be used by several goroutines at once; the zero value is ready.
type Reader struct {
	mu   sync.Mutex // guards the fields below
	data []byte
	rack *rackfile.Rack
}

// Load is as the function Load. A nil Reader decodes the description each time.
func (r *Reader) Load(paths rackfile.Paths) (*rackfile.Rack, error) {
	data, err := os.ReadFile(paths.Spec())
	if err != nil {
		return nil, err
	}
	rack, err := r.decode(data)
	if err != nil {
		return nil, err
	}
	list, err := List(paths)
	for i := range list {
		rack.Hosts = append(rack.Hosts, list[i].Host)
	}
	return rack, err
}

func (r *Reader) decode(data []byte) (*rackfile.Rack, error) {
	if r == nil {
		return rackfile.Decode(data)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rack == nil || !bytes.Equal(data, r.data) {
		rack, err := rackfile.Decode(data)
		if err != nil {
			return nil, err
		}
		r.data, r.rack = data, rack
	}
	rack := *r.rack
	rack.Hosts = slices.Clip(rack.Hosts) // guests are appended to a copy
	return &rack, nil
}
