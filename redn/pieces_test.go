package redn_test

import (
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A receive of a program's queue pair has at most 16 pieces, as on the authors' NICs: the requests of a program get no
// more arguments by one message.
func TestPiecesOfAReceive(t *testing.T) {
	m := newMachine(t, true)
	pieces := make([]verbs.SGE, sendring.MaxSGE+1)
	for i := range pieces {
		pieces[i] = verbs.SGE{Addr: m.Data.Addr + uint64(8*i), Length: 8, LKey: m.Data.LKey}
	}
	qp := m.QPOf(m.main)
	if err := qp.PostRecv([]verbs.RecvWR{{SGL: pieces[:16]}}); err != nil {
		t.Errorf("16 pieces: %v", err)
	}
	if err := qp.PostRecv([]verbs.RecvWR{{SGL: pieces}}); !errors.Is(err, verbs.ErrLimit) && !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("17 pieces: %v", err)
	}
}
