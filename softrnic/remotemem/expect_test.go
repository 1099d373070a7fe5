package remotemem

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The error of a connection that has failed names the peer and the operation that failed first, also if
// there never was a connection.
func TestFailedConnectionIsNamed(t *testing.T) {
	for _, c := range []struct {
		last OpError
		want string
	}{
		{OpError{}, "SEND at ::1: " + verbs.WRFlushErr.String()},
		{OpError{Op: verbs.OpWrite, Status: verbs.RetryExcErr}, "WRITE at ::1: " + verbs.RetryExcErr.String()},
	} {
		f := &Fabric{peers: []*peer{{addr: netip.IPv6Loopback(), last: c.last}}}
		f.rt = still{}
		err := f.Expect(0, 1, func() bool { return false })
		if failed := (*OpError)(nil); !errors.As(err, &failed) || err.Error() != c.want {
			t.Errorf("%v, want %s", err, c.want)
		}
		if err := f.Expect(0, 1, func() bool { return true }); err != nil {
			t.Errorf("although the answer is there: %v", err)
		}
	}
}

// still is a runtime whose time stands still.
type still struct{ verbs.Runtime }

func (still) Now() clock.Time { return 0 }
