package interop_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// plan is the configuration of a station, as JSON on its standard input; each result is a line of
// JSON on its standard output.
type plan struct {
	Ifname string       `json:"ifname"`
	Addrs  []netip.Addr `json:"addrs"`
	// Peers are the guest's addresses, all at PeerMAC.
	Peers   []netip.Addr `json:"peers"`
	PeerMAC wire.MAC     `json:"peerMac"`
	// Network and Guest are the address at which guest/verbs.py answers.
	Network string `json:"network"`
	Guest   string `json:"guest"`
	Cells   []cell `json:"cells"`
	// Workers is how many cells run at the same time, each with a queue pair of its own on both
	// NICs.
	Workers int    `json:"workers"`
	Seed    uint64 `json:"seed"`
	// Adopt is what the targets need in order to give the switch connections; nil: it gets none.
	Adopt *adoption `json:"adopt,omitempty"`
}

// station runs inside a host of the rack: it has a NIC of its own on the host's link, and runs all
// cells.
func station(in io.Reader, out io.Writer) error {
	var p plan
	if err := json.NewDecoder(in).Decode(&p); err != nil {
		return err
	}
	dev, err := openNIC(&p)
	if err != nil {
		return err
	}
	defer dev.Close()
	var mu sync.Mutex // guards enc and the error
	enc := json.NewEncoder(out)
	next := make(chan int, len(p.Cells))
	for i := range p.Cells {
		next <- i
	}
	close(next)
	workers := make(chan error, max(p.Workers, 1))
	for w := range cap(workers) {
		go func() { workers <- p.work(dev, w, next, &mu, enc) }()
	}
	for range cap(workers) {
		err = errors.Join(err, <-workers)
	}
	return err
}

// work runs cells with one of the programs guest/verbs.py.
func (p *plan) work(dev *device.Device, worker int, next <-chan int, mu *sync.Mutex, enc *json.Encoder) error {
	c, err := net.Dial(p.Network, fmt.Sprintf("%s%d", p.Guest, worker))
	if err != nil {
		return err
	}
	defer c.Close()
	rxe := newTheirs(c)
	for i := range next {
		cell := p.Cells[i]
		our := &ours{ctx: dev.Context(), gid: cell.OurGID}
		a, b := end(rxe), end(our)
		if cell.Ours {
			a, b = b, a
		}
		b = p.adopt(&cell, b)
		begin := time.Now()
		r := result{Cell: cell}
		if err := cell.run(a, b, i); err != nil {
			r.Wrong = err.Error()
		}
		r.Elapsed = time.Since(begin)
		mu.Lock()
		err := errors.Join(our.ctx.Close(), enc.Encode(r))
		mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// openNIC opens a second NIC on the interface beside the daemon's. Each ignores packets to queue
// pairs that it does not have.
func openNIC(p *plan) (*device.Device, error) {
	port, err := afpacket.Open(afpacket.Config{Ifname: p.Ifname, Mode: afpacket.Host})
	if err != nil {
		return nil, err
	}
	w, err := afpacket.NewWaiter(50*time.Microsecond, port)
	if err != nil {
		return nil, errors.Join(err, port.Close())
	}
	mac, err := wire.ParseMAC(port.Info().MAC)
	if err != nil {
		return nil, errors.Join(err, w.Close(), port.Close())
	}
	var gids []verbs.GID
	for _, a := range p.Addrs {
		gids = append(gids, verbs.GIDOf(a))
	}
	dev, err := device.Open(device.Config{
		Engine: engine.Config{
			Name: "interop", MAC: mac, LinkMTU: port.Info().MTU, GIDs: gids, Rand: rand.New(rand.NewPCG(rand.Uint64(), p.Seed)),
			Resolve: func(a netip.Addr) (wire.MAC, bool) {
				if p.Adopt != nil && slices.Contains(switchAddrs, a) {
					return p.Adopt.MAC, true
				}
				return p.PeerMAC, slices.Contains(p.Peers, a)
			},
		},
		Port: port, Waiter: w,
	})
	if err != nil {
		return nil, errors.Join(err, w.Close(), port.Close())
	}
	return dev, nil
}
