package machines

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/rdmalab/rdmalab/rackfile"
)

const (
	// secretSize is the size of a rack's secret in bytes.
	secretSize = 32
	// maxSlice bounds a slice in bytes: the description of the largest rack has a quarter of it.
	maxSlice = 4 << 20
)

// Slice is what a machine gets to run its part of a rack.
type Slice struct {
	// Version is that of the client's program, which the machine's must have, too.
	Version string `json:"version"`
	// Secret is the rack's, of secretSize bytes.
	Secret []byte `json:"secret"`
	// Rack is the description, with the machine's name and the generation, as rackfile.Rack.Encode
	// writes it.
	Rack json.RawMessage `json:"rack"`
}

// ErrVersion means that the machine has another version of rdmalab than the client.
var ErrVersion = errors.New("another version of rdmalab")

// ReadSlice reads and checks a slice. version is that of this program.
func ReadSlice(in io.Reader, version string) (*rackfile.Rack, []byte, error) {
	data, err := io.ReadAll(io.LimitReader(in, maxSlice+1))
	if err != nil {
		return nil, nil, err
	}
	if len(data) > maxSlice {
		return nil, nil, fmt.Errorf("a slice has at most %d bytes", maxSlice)
	}
	var s Slice
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&s); err != nil {
		return nil, nil, fmt.Errorf("this is no slice of a rack, which `rdmalab up` sends: %w", err)
	}
	if s.Version != version {
		return nil, nil, fmt.Errorf("%w: the client has %q, this machine %q: install the same on all", ErrVersion, s.Version, version)
	}
	r, err := rackfile.Decode(s.Rack)
	switch {
	case err != nil:
		return nil, nil, err
	case len(s.Secret) != secretSize:
		return nil, nil, fmt.Errorf("the secret of a slice has %d bytes, not %d", secretSize, len(s.Secret))
	case r.Machine == "" || r.Generation == 0:
		return nil, nil, errors.New("a slice has the name of a machine and a generation")
	}
	return r, s.Secret, nil
}

// sliceOf makes the slice of a machine.
func sliceOf(r *rackfile.Rack, machine, version string, secret []byte) ([]byte, error) {
	own := *r
	own.Machine = machine
	text, err := own.Encode()
	if err != nil {
		return nil, err
	}
	return json.Marshal(Slice{Version: version, Secret: secret, Rack: text})
}
