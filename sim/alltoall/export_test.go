package alltoall

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/sim/simrack"
)

// checked returns what check says of host 1 if its word 3 has this value and the others are those of host 2.
func (l *Load) checked(w uint64) (found, err error) {
	r, err := simrack.New(l.Rack, simrack.Options{Datagrams: true})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	nodes, err := l.connect(r)
	if err != nil {
		return nil, err
	}
	var b []byte
	for k := range l.Size / 8 {
		v := word(2, k)
		if k == 3 {
			v = w
		}
		b = binary.BigEndian.AppendUint64(b, v)
	}
	if err := nodes[1].mr.WriteAt(b, l.Size); err != nil {
		return nil, err
	}
	return l.check(nodes, 1), nil
}
