package hostd

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	onermahost "github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/onerma/socket"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/costs"
	"github.com/rdmalab/rdmalab/softrnic/clock/real"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
	"github.com/rdmalab/rdmalab/softrnic/packetio/direct"
	"github.com/rdmalab/rdmalab/softrnic/perf/raw"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
	"github.com/rdmalab/rdmalab/topo/guests"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// Config says which host of which rack the daemon serves.
type Config struct {
	// Dir is the rack's state folder (rackfile.Paths.Dir). Name is the name of the host in the rack's
	// description, or that of a further NIC of a host.
	Dir, Name string
	// Log is the daemon's logger; nil means standard error.
	Log *slog.Logger
	// Ifname is the interface of the NIC; "" means that of the description.
	Ifname string
	// Netns is the path of the host's network namespace; "" means that of the process.
	Netns string
	// Gate holds back requests while the host is stopped; nil means that it is never stopped so.
	Gate *control.Gate
	// Fabric carries RoCEv2 packets to the switch if that runs in the same process; else nil.
	Fabric *direct.Fabric
	// Poller looks at the rings of programs, if Fabric is set; nil means that the host does so itself.
	Poller *serve.Poller
	// Reader reads the rack's description; nil means that it is decoded each time.
	Reader *guests.Reader

	// Broken is called when the NIC panics; the caller then closes the host. nil means that the panic
	// ends the process.
	Broken func(*device.Panic)

	// beside has the further NICs of the host whose first NIC this is.
	beside  []*Host
	linkMTU int // of the NIC, in bytes

	// In tests without privileges, open replaces openPort, and the services listen at listen.
	open   func(self *rackfile.Host) (port, packetio.Waiter, error)
	listen netip.Addr
}

// inside runs f on a thread in the host's network namespace. Sockets that f makes stay there.
func (c *Config) inside(f func() error) error { return nl.Do(c.Netns, f) }

// port is the NIC's link: an afpacket.Port or a memoryLink.
type port interface {
	packetio.Port
	Info() afpacket.Info
	Stats() packetio.Stats
	LinkUp() bool
}

// nics are the NICs of a host, which share its port, and what keeps them like the interface.
type nics struct {
	dev   *device.Device
	lists listings // of dev
	// The 1RMA NIC, and the socket through which programs use it; nil if the rack has none.
	solo     *onermahost.NIC
	programs *socket.Server
	shown    *livePort
	netlink  *netlink // answers for NETLINK_RDMA, for all NICs of the host; nil except on the first
	boundary boundary
}

type Host struct {
	cfg   Config
	log   *slog.Logger
	rack  atomic.Pointer[rackfile.Rack] // the description, with guests; a reload replaces it
	self  *rackfile.Host                // as it was at the start; of a reload, only its quota counts
	index int
	other neighbours // resolves guests, which are not in the rack's description

	port port
	nics
	base verbs.Context // for objects that survive a crash of the application
	conn serve.Manager // makes the connections of the host's services and jobs
	raw  *raw.Server
	ctl  *control.Server
	app  *application
	ipc  *serve.Server // lets programs on the host use the NIC
	mem  []byte        // the region's memory, outside the Go heap

	stop chan struct{}
	wg   sync.WaitGroup // the link monitor, the log of failures

	mu        sync.Mutex // guards the fields below
	tear      *Tear
	tearTimer *time.Timer
}

// Open starts a host with its first NIC, or a further NIC of a host, alone; OpenMachine starts all. It
// returns as soon as the control socket answers.
func Open(cfg Config) (*Host, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(guests.LogHandler(rackfile.Paths{Dir: cfg.Dir}, os.Stderr))
	}
	h := &Host{cfg: cfg, log: cfg.Log, stop: make(chan struct{})}
	if err := h.cfg.inside(h.open); err != nil {
		return nil, errors.Join(fmt.Errorf("host %s: %w", cfg.Name, err), h.Close())
	}
	return h, nil
}

func (h *Host) open() (err error) {
	if err := h.readSpec(); err != nil {
		return err
	}
	if err := h.openNIC(); err != nil {
		return err
	}
	if h.self.Memory > 0 {
		h.mem, err = unix.Mmap(-1, 0, int(h.self.Memory), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
		if err != nil {
			return fmt.Errorf("%d bytes of memory for the region: %w", h.self.Memory, err)
		}
	}
	if err := h.listen(); err != nil {
		return err
	}
	h.app = new(application)
	h.app.of(h)
	if err := h.app.start(); err != nil {
		return err
	}
	if err := errors.Join(h.serveVerbs(), h.serveOneRMA()); err != nil {
		return err
	}
	h.boundary = boundary{h: h, plan: fault.NewVerbs(h.rack.Load().Seed, h.self.Name)}
	h.installTears()
	h.wg.Go(func() { h.shown.follow(h.stop) })
	failures := failureLog{log: h.log, dev: h.dev}
	failures.begin()
	h.wg.Go(func() { failures.run(h.stop) })
	h.ctl, err = control.Serve(rackfile.Paths{Dir: h.cfg.Dir}.Socket(h.cfg.Name), h.routes())
	return err
}

func (h *Host) readSpec() error {
	paths := rackfile.Paths{Dir: h.cfg.Dir}
	path := paths.Spec()
	h.other.paths, h.other.log = paths, h.log
	rack, err := h.cfg.Reader.Load(paths)
	if err != nil {
		return fmt.Errorf("rack description: %w", err)
	}
	var ok bool
	if h.self, h.index, ok = rack.Host(h.cfg.Name); !ok {
		return fmt.Errorf("%s has no host of this name; it has %v", path, rack.HostNames())
	}
	h.rack.Store(rack)
	h.cfg.Ifname, h.cfg.linkMTU = cmp.Or(h.cfg.Ifname, h.self.Ifname()), rack.MTUOf(h.self)
	return nil
}

// reload reads the rack's description again: the addresses of other hosts, and the quota of this one.
// Programs that are attached keep the quota of the time when they attached.
func (h *Host) reload() error {
	rack, err := h.cfg.Reader.Load(rackfile.Paths{Dir: h.cfg.Dir})
	if err != nil {
		return fmt.Errorf("rack description: %w", err)
	}
	self, _, ok := rack.Host(h.cfg.Name)
	if !ok {
		return fmt.Errorf("the rack's description has no host %s any more", h.cfg.Name)
	}
	h.rack.Store(rack)
	h.ipc.SetLimits(limitsOf(self.Quota))
	h.log.Info("the rack's description was read again", "hosts", len(rack.Hosts))
	return nil
}

// openPort opens the interface of the NIC, and a waiter for its frames.
func (h *Host) openPort(self *rackfile.Host) (port, packetio.Waiter, error) {
	cfg := afpacket.Config{Ifname: h.cfg.Ifname, Mode: afpacket.Host, Merge: self.GSO}
	if h.rack.Load().OneRMA != nil {
		cfg.Also = onerma.UDPPort
	}
	cfg.Pauses = queuesOf(h.rack.Load(), self) != nil
	p, err := afpacket.Open(cfg)
	if err != nil {
		return nil, nil, err
	}
	w, err := afpacket.NewWaiter(self.Spin, p)
	if err != nil {
		return nil, nil, errors.Join(err, p.Close())
	}
	for _, note := range p.Info().Notes {
		h.log.Info("port", "note", note) // another way is taken, which works
	}
	return p, w, nil
}

// openNIC opens the port, and starts on it the device and, if the rack has them, the 1RMA NIC.
func (h *Host) openNIC() error {
	open := h.openPort
	switch {
	case h.self.Role == rackfile.Guest:
	case h.cfg.Fabric != nil:
		open = func(*rackfile.Host) (port, packetio.Waiter, error) { return h.cfg.openDirect() }
	case h.rack.Load().Cable == rackfile.CableMemory:
		open = h.openMemory
	}
	if h.cfg.open != nil {
		open = h.cfg.open
	}
	link, waiter, err := open(h.self)
	if err != nil {
		return err
	}
	info := link.Info()
	mac, err := wire.ParseMAC(info.MAC)
	if err != nil {
		return errors.Join(err, waiter.Close(), link.Close())
	}
	if mac != h.self.MAC {
		h.log.Warn("the interface has another address than the rack's description says", "interface", mac, "rack", h.self.MAC)
	}
	var gids []verbs.GID
	for _, a := range []netip.Addr{h.self.IPv4, h.self.IPv6} {
		if a.IsValid() {
			gids = append(gids, verbs.GIDOf(a))
		}
	}
	gids = append(gids, verbs.LinkLocalGID(mac))
	spin := cmp.Or(h.self.Spin, -1) // no spinning by default; 0 would select the device's default
	second, err := h.makeOneRMA(mac, min(info.MTU, h.cfg.linkMTU))
	if err != nil {
		return errors.Join(err, waiter.Close(), link.Close())
	}
	model, err := costsOf(h.rack.Load())
	if err != nil {
		return errors.Join(err, waiter.Close(), link.Close())
	}
	h.dev, err = device.Open(device.Config{
		Second: second, Clock: real.NewSlow(h.rack.Load().Factor()), Costs: model, Queues: queuesOf(h.rack.Load(), h.self),
		Engine: engine.Config{
			Name: h.self.Name, MAC: mac, LinkMTU: min(info.MTU, h.cfg.linkMTU), GIDs: gids,
			// The seed is not derived from the rack's seed. After a restart a host must not use the
			// QPNs and keys of its former incarnation, because peers may still use them.
			Rand:    rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
			Resolve: h.resolve,
			PKeys:   h.self.PKeys,
			TOS:     h.self.TOS,
			Window:  h.self.Window, Acks: engine.Acks{Most: h.self.NIC.Acks}, Recovery: transport.Recovery{Kind: h.self.RecoveryKind()},
			Limits: engine.Limits{DeviceMemory: deviceMemory}, DistinctKeys: h.self.DistinctKeys,
			// As in the simulator, the entries of send rings take their time one by one.
			RingPaced: model != nil, RingCosts: model.Rings(),
			Congestion: congestionOf(h.rack.Load(), h.self),
		},
		Port: link, Waiter: waiter, Broken: h.cfg.Broken, Spin: spin, Seed: h.rack.Load().Seed + uint64(h.index),
	})
	if err != nil {
		return errors.Join(err, waiter.Close(), link.Close())
	}
	h.port = link
	h.shown = &livePort{
		log: h.log, netns: h.cfg.Netns, ifname: h.cfg.Ifname, real: h.cfg.open == nil, link: link, dev: h.dev, most: h.cfg.linkMTU,
		files: sysfs{
			dir: rackfile.Paths{Dir: h.cfg.Dir}.VerbsTree(h.self.Name),
			at:  uverbs.Place{Device: h.self.DeviceName(), Nth: h.self.NIC.Nth, Ifname: h.cfg.Ifname, NUMA: h.self.NIC.NUMA},
		},
	}
	var has nl.Port
	if h.shown.real {
		if has, err = nl.ReadPort(h.cfg.Netns, h.cfg.Ifname); err != nil {
			return err
		}
	}
	h.shown.table = newAddressTable(mac, gids, has.Addrs)
	h.base = h.dev.Context()
	h.lists = listings{h.self.Name, h.dev, h.base.Runtime(), &h.rack}
	return h.upOneRMA()
}

// costsOf returns the cost model of a rack in slow motion, and nil for any other rack.
func costsOf(r *rackfile.Rack) (*cost.Model, error) {
	if r.Slow == 0 {
		return nil, nil
	}
	return costs.Builtin(r.Cost)
}

// queuesOf returns the egress queues of a host's NIC; nil means that it has none.
func queuesOf(r *rackfile.Rack, self *rackfile.Host) *portqueue.Config {
	cfg, ok := r.NICQueue(self)
	if !ok {
		return nil
	}
	return &cfg
}

func (h *Host) listen() (err error) {
	if h.conn, err = h.connections(); err != nil {
		return err
	}
	if h.cfg.open == nil { // raw frames need a real interface
		h.raw, err = raw.Listen(h.rawHost(), h.log)
	}
	return err
}

func (h *Host) rawHost() raw.Host {
	self := raw.Host{Name: h.self.Name, Ifname: h.cfg.Ifname, MAC: h.self.MAC, Spin: h.self.Spin, LinkMTU: h.cfg.linkMTU, Inside: h.cfg.inside}
	if len(h.rack.Load().NICs(h.self.Machine())) > 1 {
		self.At = h.self.IPv4 // each NIC has a server of its own
	}
	return self
}

// connections opens the connection manager that the rack's description names: by datagrams, or by
// TCP.
func (h *Host) connections() (serve.Manager, error) {
	if h.rack.Load().Connect == rackfile.ConnectTCP {
		return h.listenTCP()
	}
	m, err := rdmacm.NewCM(rdmacm.CMConfig{Context: h.base})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// listenTCP opens a connection manager that exchanges the parameters of queue pairs over TCP. It
// listens on all addresses.
func (h *Host) listenTCP() (serve.Manager, error) {
	first, second := netip.IPv6Unspecified(), netip.IPv4Unspecified()
	if h.cfg.listen.IsValid() {
		first, second = h.cfg.listen, h.cfg.listen
	}
	at := func(a netip.Addr) rdmacm.OOBConfig {
		return rdmacm.OOBConfig{Context: h.base, Listen: netip.AddrPortFrom(a, rdmacm.DefaultPort), Inside: h.cfg.inside}
	}
	m, err := rdmacm.NewOOB(at(first))
	if err != nil {
		// A kernel without IPv6 refuses the unspecified IPv6 address, which would cover both
		// families.
		m, err = rdmacm.NewOOB(at(second))
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// resolve returns the MAC address of an IP address. The addresses of hosts are in the rack's
// description, and those of guests in their files, so connecting a queue pair needs no ARP. Other
// addresses are looked up in the kernel's neighbour table; one that is not there is asked for, so that a
// later attempt finds it.
func (h *Host) resolve(a netip.Addr) (wire.MAC, bool) {
	if mac, ok := h.rack.Load().Neighbour(a); ok {
		return mac, true
	}
	if mac, ok := h.other.find(a); ok {
		return mac, true
	}
	mac, ok, err := nl.Neighbour(h.cfg.Netns, h.cfg.Ifname, a)
	if err == nil && !ok {
		_ = nl.Solicit(h.cfg.Netns, a) // without a route to it, the address stays unknown
	}
	return mac, ok && err == nil
}

// address returns an IP address; `to` is the name of a host, or the text of an address.
func (h *Host) address(to string) (netip.Addr, error) {
	a, err := h.rack.Load().Address(to)
	if err != nil {
		err = control.Errorf(http.StatusNotFound, "%v", err)
	}
	return a, err
}

// Exclusive runs f while the NIC does nothing, and every thread that uses it waits.
func (h *Host) Exclusive(f func()) { h.dev.With(func(*engine.Engine) { f() }) }

// Close ends the host: first the application, then the listeners, then the NIC.
func (h *Host) Close() error {
	var errs []error
	closing := func(err error) { errs = append(errs, err) }
	select {
	case <-h.stop:
		return nil
	default:
		close(h.stop)
	}
	if h.cfg.Fabric != nil && h.port != nil {
		// What ends a host in the shared process is its crash: no packet leaves it any more.
		h.cfg.Fabric.Link(h.self.Name).Cut()
	}
	if h.app != nil {
		h.app.crash() // before the control server, because its handlers wait for their jobs
	}
	closing(closeIf(h.ctl))
	h.wg.Wait()
	closing(closeIf(h.netlink))
	closing(closeIf(h.ipc))
	closing(closeIf(h.programs))
	closing(closeIf(h.raw))
	closing(closeIf(h.conn))
	h.stopTear()
	closing(closeIf(h.dev))
	if h.mem != nil {
		closing(unix.Munmap(h.mem)) // only the NIC uses this memory
		h.mem = nil
	}
	return errors.Join(errs...)
}

func closeIf[T interface {
	comparable
	Close() error
}](c T) error {
	var none T
	if c == none {
		return nil
	}
	return c.Close()
}
