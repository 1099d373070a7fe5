package switchd

import (
	"os"
	"sync/atomic"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// deviceLinks lists the ports of a switch that are network devices of the machine.
func deviceLinks(rack *rackfile.Rack, name string) (list []Link) {
	for _, d := range rack.Devices.At(name) {
		list = append(list, Link{Host: d.Name, Ifname: d.Ifname, GSO: true, Device: true})
	}
	return list
}

// devicePort is a network device of the machine. While it is cut, frames do not pass; the device itself
// stays as it is.
type devicePort struct {
	wire *afpacket.Port
	cut  atomic.Bool
}

var _ wirePort = (*devicePort)(nil)

// openDevice opens a network device, in the namespace of the machine.
func openDevice(paths rackfile.Paths, i int, l Link) (packetio.Port, error) {
	p := new(devicePort)
	if _, err := os.Lstat(paths.Cut(l.Host)); err == nil {
		p.cut.Store(true)
	}
	err := nl.Do(paths.Outside(), func() (err error) {
		p.wire, err = afpacket.Open(afpacket.Config{Ifname: l.Ifname, Mode: afpacket.Switch, Index: i, Merge: l.GSO, Promiscuous: true})
		return err
	})
	if err != nil {
		return nil, err // not p: an interface that holds it is not nil
	}
	return p, nil
}

func (p *devicePort) Recv(b *packetio.Batch) (int, error) {
	n, err := p.wire.Recv(b)
	if p.cut.Load() {
		b.Reset()
		return 0, err
	}
	return n, err
}

// Send sends nothing while the port is cut: then it has no carrier, and the switch has counted the frames.
func (p *devicePort) Send(b *packetio.Batch) (int, error) {
	if p.cut.Load() {
		return 0, nil
	}
	return p.wire.Send(b)
}

func (p *devicePort) Close() error { return p.wire.Close() }

func (p *devicePort) LinkUp() bool { return !p.cut.Load() && p.wire.LinkUp() }

func (p *devicePort) Stats() packetio.Stats { return p.wire.Stats() }

// Switch cuts the port, or ends that.
func (p *devicePort) Switch(up bool) { p.cut.Store(!up) }
