package hostd

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/direct"
)

// directLink is the NIC's port if the switch runs in the same process.
type directLink struct {
	*direct.Port
	*besideInterface
}

var _ packetio.Carrier = (*directLink)(nil)

// openDirect opens the host's end of its direct link.
func (c *Config) openDirect() (port, packetio.Waiter, error) {
	b, err := c.lookUp("direct")
	if err != nil {
		return nil, nil, err
	}
	w := direct.NewWaiter()
	l := &directLink{Port: c.Fabric.Link(c.Name).Host(b.info.MTU), besideInterface: b}
	b.setUp, b.wake = l.SetUp, w.Wake
	l.LinkUp()
	return l, w, nil
}

// LinkUp also gives back the memory of bursts, because it is called from time to time.
func (l *directLink) LinkUp() bool {
	l.Trim()
	return l.besideInterface.LinkUp()
}

func (l *directLink) Close() error { return errors.Join(l.Port.Close(), l.looker.Close()) }

// Recv returns afpacket.ErrGone after the interface was removed.
func (l *directLink) Recv(b *packetio.Batch) (int, error) {
	if err := l.lost(); err != nil {
		return 0, err
	}
	return l.Port.Recv(b)
}
