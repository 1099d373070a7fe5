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

// memoryLink is the NIC's port on a rack with rackfile.CableMemory. Its address, MTU and carrier are
// those of the interface. The interface itself carries all frames that are not RoCEv2.
type memoryLink struct {
	*memlink.Port
	conn *memlink.Connector
	info afpacket.Info
	gone atomic.Bool // true: the interface was removed
}

// openMemory opens the memory link of the host, and waits up to attachWait until the switch has
// attached it. It does not wait if a command has crashed the switch.
func (h *Host) openMemory(self *rackfile.Host) (port, packetio.Waiter, error) {
	l, err := nl.LinkByName("", h.cfg.Ifname)
	if err != nil {
		return nil, nil, err
	}
	p, err := memlink.NewPort(memlink.Config{MTU: l.MTU, Merge: self.GSO})
	if err != nil {
		return nil, nil, err
	}
	w, err := afpacket.NewWaiterBeside([]afpacket.Source{p}, self.Spin)
	if err != nil {
		return nil, nil, errors.Join(err, p.Close())
	}
	paths := rackfile.Paths{Dir: h.cfg.Dir}
	m := &memoryLink{Port: p, conn: memlink.Connect(paths.Links(), self.Name, p, h.log), info: afpacket.Info{
		Ifname: l.Name, Ifindex: l.Index, MAC: l.MAC.String(), MTU: l.MTU,
		Receive: fmt.Sprintf("memory %d frames, %s", memlink.Slots, units.FormatSize(memlink.DataBytes)), Silencer: "none",
	}}
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

func (m *memoryLink) Info() afpacket.Info { return m.info }

// LinkUp reports whether the interface has a carrier. While it has none, the memory link carries no
// frames either.
func (m *memoryLink) LinkUp() bool {
	l, err := nl.LinkByName("", m.info.Ifname)
	up := err == nil && l.Up && l.Carrier
	m.SetUp(up)
	if errors.Is(err, fs.ErrNotExist) && !m.gone.Swap(true) {
		m.Wake()
	}
	return up
}

// Recv returns afpacket.ErrGone after the interface was removed, like a packet socket.
func (m *memoryLink) Recv(b *packetio.Batch) (int, error) {
	if m.gone.Load() {
		return 0, fmt.Errorf("memory link of %s: %w", m.info.Ifname, afpacket.ErrGone)
	}
	return m.Port.Recv(b)
}

func (m *memoryLink) Close() error { return errors.Join(m.conn.Close(), m.Port.Close()) }
