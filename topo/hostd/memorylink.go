package hostd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
	"github.com/rdmalab/rdmalab/softrnic/packetio/memlink"
	"github.com/rdmalab/rdmalab/topo/nl"
	"github.com/rdmalab/rdmalab/units"
)

// attachWait is how long a starting host waits until the switch attaches its memory link. If the
// switch does not run, the host starts without the memory link, and gets it later.
const attachWait = 2 * time.Second

// besideInterface is what the port of a NIC takes from the interface if the interface carries all
// frames but RoCEv2: address, MTU and carrier.
type besideInterface struct {
	looker *nl.Looker
	info   afpacket.Info
	gone   atomic.Bool // true: the interface was removed
	// setUp and wake are those of the port: wake makes its owner notice that it is gone.
	setUp func(up bool)
	wake  func()
}

// lookUp reads the interface of the host. receive says for the status how the port gets its frames. The
// port closes looker.
func (c *Config) lookUp(receive string) (*besideInterface, error) {
	looker, err := nl.NewLooker(c.Netns, c.Ifname)
	if err != nil {
		return nil, err
	}
	l, err := looker.Look()
	if err != nil {
		return nil, errors.Join(err, looker.Close())
	}
	return &besideInterface{looker: looker, info: afpacket.Info{
		Ifname: l.Name, Ifindex: l.Index, MAC: l.MAC.String(), MTU: l.MTU, Receive: receive, Silencer: "none",
	}}, nil
}

func (b *besideInterface) Info() afpacket.Info { return b.info }

// LinkUp reports whether the interface has a carrier. While it has none, the port carries no frames
// either.
func (b *besideInterface) LinkUp() bool {
	up, err := b.looker.Passes()
	b.setUp(up)
	if errors.Is(err, fs.ErrNotExist) && !b.gone.Swap(true) {
		b.wake()
	}
	return up
}

// lost returns afpacket.ErrGone after the interface was removed, like a packet socket.
func (b *besideInterface) lost() error {
	if b.gone.Load() {
		return fmt.Errorf("port of %s: %w", b.info.Ifname, afpacket.ErrGone)
	}
	return nil
}

// memoryLink is the NIC's port on a rack with rackfile.CableMemory.
type memoryLink struct {
	*memlink.Port
	*besideInterface
	conn *memlink.Connector
}

// openMemory opens the memory link of the host, and waits up to attachWait until the switch has
// attached it. It does not wait if a command has crashed the switch.
func (h *Host) openMemory(self *rackfile.Host) (port, packetio.Waiter, error) {
	l, err := h.cfg.lookUp(fmt.Sprintf("memory %d frames, %s", memlink.Slots, units.FormatSize(memlink.DataBytes)))
	if err != nil {
		return nil, nil, err
	}
	p, err := memlink.NewPort(memlink.Config{MTU: l.info.MTU, Merge: self.GSO})
	if err != nil {
		return nil, nil, errors.Join(err, l.looker.Close())
	}
	l.setUp, l.wake = p.SetUp, p.Wake
	w, err := afpacket.NewWaiterBeside([]afpacket.Source{p}, self.Spin)
	if err != nil {
		return nil, nil, errors.Join(err, p.Close(), l.looker.Close())
	}
	paths := rackfile.Paths{Dir: h.cfg.Dir}
	m := &memoryLink{Port: p, besideInterface: l, conn: memlink.Connect(paths.Links(), self.Name, p, h.log)}
	m.LinkUp()
	if _, err := os.Stat(paths.Crashed(rackfile.SwitchName)); err == nil {
		return m, w, nil
	}
	select {
	case <-m.conn.Attached():
	case <-time.After(attachWait):
		h.log.Warn("the switch has not attached the memory link yet", "waited", attachWait)
	}
	return m, w, nil
}

// Recv returns afpacket.ErrGone after the interface was removed.
func (m *memoryLink) Recv(b *packetio.Batch) (int, error) {
	if err := m.lost(); err != nil {
		return 0, err
	}
	return m.Port.Recv(b)
}

func (m *memoryLink) Close() error {
	return errors.Join(m.conn.Close(), m.Port.Close(), m.looker.Close())
}
