package switchd

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/trunkport"
	"github.com/rdmalab/rdmalab/softrnic/trunk"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// Far is the addresses of a trunk that datagrams carry, as between machines, and what carries it; its zero
// value is that of all other links.
type Far struct {
	Local, Peer netip.AddrPort
	Carrier     trunkport.Carrier
	// Side is that of this end.
	Side trunk.Side
	// Own is whether both ends are on this machine, in the network namespace of the switches.
	Own bool
}

// remote returns the addresses of a trunk as a switch sees them.
func remote(rack *rackfile.Rack, c rackfile.Trunk, name string) Far {
	local, peer, ok := rack.Remote(c, name)
	if !ok {
		return Far{}
	}
	f := Far{Local: local, Peer: peer, Side: trunk.Far, Own: rack.Fabric.OnLoopback()}
	if name == c.Leaf {
		f.Side = trunk.Near
	}
	if rack.Fabric.CarrierName() == rackfile.CarrierTCP {
		f.Carrier = trunkport.TCP
	}
	return f
}

// trunkOpener opens the trunks that datagrams carry. outside is the pin of the network namespace from which those to
// other machines go out, and own that of the switches, in which the others are; "" means that of the process.
type trunkOpener struct {
	paths   rackfile.Paths
	outside string
	own     string
	rack    string
	limit   int // length of the longest frame of a host
}

// longestFrame returns the length of the longest frame that a host of the rack sends in bytes.
func longestFrame(rack *rackfile.Rack) int {
	const ethernet = 14
	mtu := rack.LinkMTU
	for i := range rack.Hosts {
		mtu = max(mtu, rack.MTUOf(&rack.Hosts[i]))
	}
	return mtu + ethernet
}

// open makes the end of a trunk, in the network namespace of the machine or of the switches.
func (o trunkOpener) open(i int, l Link) (packetio.Port, error) {
	secret, err := o.secret()
	if err != nil {
		return nil, err
	}
	netns := o.outside
	if l.Far.Own {
		netns = o.own
	}
	_, uncut := os.Lstat(o.paths.Cut(l.Host))
	p, err := trunkport.Open(trunkport.Config{
		Local: l.Far.Local, Peer: l.Far.Peer, Carrier: l.Far.Carrier, Index: i, Limit: o.limit, Cut: uncut == nil,
		Trunk:  trunk.Config{Rack: o.rack, Trunk: l.Host, Secret: secret, Side: l.Far.Side},
		Within: func(f func() error) error { return nl.Do(netns, f) },
	})
	if err != nil {
		return nil, err // not p: an interface that holds a nil *trunkport.Port is not nil
	}
	return p, nil
}

// leastSecret is how many bytes a rack's secret has at least.
const leastSecret = 16

// secret reads the rack's secret. The trunks use a hash of it.
func (o trunkOpener) secret() (trunk.Secret, error) {
	data, err := os.ReadFile(o.paths.Secret())
	if err != nil {
		return trunk.Secret{}, fmt.Errorf("the rack's secret: %w", err)
	}
	if len(data) < leastSecret {
		return trunk.Secret{}, fmt.Errorf("the rack's secret has %d bytes, fewer than %d: bring the rack up again", len(data), leastSecret)
	}
	return sha256.Sum256(data), nil
}

// readdress gives the trunks the addresses that their ends have now in want. A trunk keeps its port, which the
// watcher opens again. Only the loop calls it.
func (s *ports) readdress(want []Link) {
	for i, l := range s.links {
		at := slices.IndexFunc(want, func(w Link) bool { return w.Host == l.Host && w.Far != l.Far })
		if at < 0 || l.Far == (Far{}) || want[at].Far == (Far{}) {
			continue
		}
		s.links[i].Far = want[at].Far
		if s.list[i].io != nil {
			s.lost(i, fmt.Errorf("its ends are now %v and %v", want[at].Far.Local, want[at].Far.Peer))
		}
		s.publish()
	}
}

// timed is implemented by a port that has something to do also while no frame comes or goes.
type timed interface {
	// Tick does what is due, and returns the time until Tick or Recv must be called.
	Tick() (wait time.Duration)
}

// timers are the ports that are timed. at is when the first of them must be called.
type timers struct {
	ports []timed
	at    clock.Time
}

// of takes the ports that are open.
func (t *timers) of(list []port) {
	t.ports, t.at = t.ports[:0], clock.Never
	for i := range list {
		if p, ok := list[i].io.(timed); ok {
			t.ports, t.at = append(t.ports, p), 0
		}
	}
}

// tick calls the ports. They look at the time themselves, so it is called in every round.
func (t *timers) tick(now clock.Time) {
	if len(t.ports) == 0 {
		return
	}
	t.at = clock.Never
	for _, p := range t.ports {
		t.at = clock.Min(t.at, now.Add(p.Tick()))
	}
}

// notes keeps what is worth knowing of trunks to other machines, and logs what is new in kind.
func (s *ports) notes() {
	for i := range s.list {
		p := &s.list[i]
		far, ok := p.io.(*trunkport.Port)
		if !ok {
			continue
		}
		stats := far.Trunk()
		list := notesOf(&stats, s.strict)
		if len(list) > len(p.notes) {
			s.log.Warn("note on a trunk", "trunk", s.hosts[i], "note", strings.Join(list, "; "))
		}
		p.notes = list
	}
}

// notesOf says what is worth knowing of a trunk to another machine. If it is strict, that is also what the
// network has lost.
func notesOf(s *trunk.Stats, strict bool) (list []string) {
	if s.Slow != "" {
		list = append(list, s.Slow)
	}
	if strict && s.Missed() > 0 {
		list = append(list, fmt.Sprintf("strict: datagrams lost in the network, or late: %d", s.Missed()))
	}
	if strict && s.Silences > 0 {
		list = append(list, fmt.Sprintf("strict: times that the other end was silent: %d", s.Silences))
	}
	return list
}

// TrunkSwitch is the body of POST /trunk: it cuts a trunk to another machine at this end, or the port of a
// device, or ends that.
type TrunkSwitch struct {
	Name string `json:"name"`
	Up   bool   `json:"up"`
}

func (d *Daemon) handleTrunks(m *control.Mux) {
	control.Handle(m, "POST /trunk", func(_ *http.Request, s TrunkSwitch) (none, error) {
		err := d.commands.Try(func() error {
			i, err := d.ports.of(s.Name)
			if err != nil {
				return err
			}
			switch p := d.ports.list[i].io.(type) {
			case *trunkport.Port:
				p.Switch(s.Up)
			case *devicePort:
				p.Switch(s.Up)
				d.ports.setCarrier(i, p, p.LinkUp()) // at once, so that the switch counts the next frame
			default:
				return control.Errorf(http.StatusBadRequest, "%.40q is no open trunk that datagrams carry, and no open device", s.Name)
			}
			return nil
		})
		return none{}, answer(err)
	})
}
