package nictable

import (
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// full is a NIC that has no room for further memory.
type (
	full        struct{ verbs.PD }
	fullContext struct{ verbs.Context }
	stopped     struct{ verbs.Runtime }
	refused     struct {
		rdmacm.Request
		why string
	}
)

func (full) RegMR([]byte, int, verbs.Access) (verbs.MR, error) { return nil, verbs.ErrLimit }
func (fullContext) Runtime() verbs.Runtime                     { return stopped{} }
func (stopped) Now() clock.Time                                { return 1 }
func (*refused) Private() []byte                               { return make([]byte, bufferLen) }
func (r *refused) Reject(why string) error                     { r.why = why; return nil }

// A client for whose program the NIC has no memory is refused, and the server goes on.
func TestAClientWithoutMemoryIsRefused(t *testing.T) {
	e := &Estate{ctx: fullContext{}, pd: full{}, shape: Shape{Items: 8, Value: 8, Slots: 24}}
	r := &refused{}
	if err := e.welcome(r, rdmacm.Params{}, 2); !errors.Is(err, verbs.ErrLimit) || r.why == "" {
		t.Errorf("%v, refused with %q", err, r.why)
	}
}
