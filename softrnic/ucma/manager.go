package ucma

import (
	"cmp"
	"errors"
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Config describes the connection manager of one program. All fields except the limits are
// required.
type Config struct {
	Device verbs.DeviceAttr
	// Ports has the ports of all programs on the NIC.
	Ports *Ports
	Rand  *rand.Rand
	// Owns reports whether queue pair n belongs to the program, so that the program may connect it.
	Owns func(n wire.QPN) bool
	// Tell informs the program that a channel has a new event. It must not wait.
	Tell func(channel uint32)
	// Nth is the number of the NIC, from 0, if the program has a Manager for each of Of NICs, a power of
	// two; see nics.go. Then the handles of the Manager are those with the remainder Nth. Of 0 means 1.
	Nth, Of int
	// Channels and Listeners are the largest numbers of event channels and of listeners that the
	// program may have. 0 means 1024 channels, 64 listeners.
	Channels, Listeners int
	// Quota limits the program's other objects. nil means that only the range of their handles limits
	// them.
	Quota Quota
}

const (
	defaultChannels  = 1024
	defaultListeners = 64
	// maxHandle is the largest number of identifiers that librdmacm can look up.
	maxHandle = 1<<16 - 1
	// maxBacklog is the largest backlog of a listener, and the backlog if the program requests 0: the
	// kernel's default (net.rdma_ucm.max_backlog). So a listener whose program answers no request does
	// not use up the quota of identifiers.
	maxBacklog = 1024
)

// Manager has the identifiers and event channels of one program.
type Manager struct {
	cfg      Config
	nic      reports
	channels map[uint32]*channel
	joins    map[uint32]*join
	nextCh   uint32 // the number of a channel to try next
	nextJoin uint32 // the handle of a membership to try next
}

// New returns a Manager without identifiers.
func New(cfg Config) *Manager {
	if cfg.Quota == nil {
		cfg.Quota = boundless{}
	}
	cfg.Of = max(cfg.Of, 1)
	cfg.Channels = cmp.Or(cfg.Channels, defaultChannels)
	cfg.Listeners = cmp.Or(cfg.Listeners, defaultListeners)
	m := &Manager{cfg: cfg, channels: make(map[uint32]*channel), joins: make(map[uint32]*join), nextJoin: uint32(cfg.Nth)}
	m.nic = reports{
		cfg: &m.cfg, ids: make(map[uint32]*id), next: uint32(cfg.Nth),
		conns: make(map[*engine.CMConn]*id), listeners: make(map[*engine.CMListener]*id),
	}
	return m
}

// Step is the step of the engine in which a command is executed. NIC is the NIC's connection
// manager; nil if the NIC is down. Device is what the NIC is like now, because the addresses and the
// MTU of its port change; nil means as in the step before.
type Step struct {
	Now    clock.Time
	NIC    *engine.GSI
	Out    *packetio.Batch
	Device *verbs.DeviceAttr
}

// call is a Step with the channel to which the program has written the command.
type call struct {
	Step
	ch *channel
}

// Result is the answer to a command.
type Result struct {
	Data []byte
	// Withdrawn is the number of unread events of Channel that were removed. The caller must withdraw
	// as many of the announcements that Config.Tell has made.
	Withdrawn, Channel uint32
}

var (
	errNoEvent = unix.EAGAIN
	errClosed  = errors.New("no such event channel")
)

// command makes a handler of a method with arguments of type A.
func command[A any](f func(m *Manager, x call, a A) (Result, error)) func(*Manager, call, []byte) (Result, error) {
	return func(m *Manager, x call, b []byte) (Result, error) {
		a, ok := decode[A](b)
		if !ok {
			return Result{}, unix.EINVAL
		}
		return f(m, x, a)
	}
}

// onID makes a handler of a method for the identifier that its arguments name.
func onID[A interface{ id() uint32 }](f func(m *Manager, c call, x *id, a A) (Result, error)) func(*Manager, call, []byte) (Result, error) {
	return command(func(m *Manager, c call, a A) (Result, error) {
		x, err := m.nic.find(a.id())
		if err != nil {
			return Result{}, err
		}
		return f(m, c, x, a)
	})
}

// commands are the commands that a program writes to a channel.
var commands = map[Op]func(*Manager, call, []byte) (Result, error){
	CreateID:     command((*Manager).create),
	DestroyID:    onID((*Manager).destroy),
	BindIP:       onID((*Manager).bind),
	ResolveIP:    onID((*Manager).resolve),
	ResolveRoute: onID((*Manager).resolveRoute),
	QueryRoute:   onID((*Manager).query),
	Connect:      onID((*Manager).connect),
	Listen:       onID((*Manager).listen),
	Accept:       onID((*Manager).accept),
	Reject:       onID((*Manager).reject),
	Disconnect:   onID((*Manager).disconnect),
	InitQPAttr:   onID((*Manager).initQPAttr),
	GetEvent:     func(m *Manager, x call, _ []byte) (Result, error) { return x.getEvent(m.cfg.Quota) },
	SetOption:    (*Manager).setOption,
	Notify:       onID(notify{}.execute),
	MigrateID:    onID((*Manager).migrate),
	WriteEvent:   onID(func(m *Manager, _ call, x *id, a writeEvent) (Result, error) { return m.cfg.write(x, a) }),

	JoinIPMulticast: command((*Manager).joinIP),
	JoinMulticast:   command((*Manager).joinAny),
	LeaveMulticast:  command((*Manager).leave),
}

// Execute executes a command. The error is the errno of the command, or one of package verbs.
func (m *Manager) Execute(s Step, c Command) (Result, error) {
	if s.Device != nil {
		m.cfg.Device = *s.Device
	}
	ch := m.channels[c.Channel]
	f := commands[c.Op]
	switch {
	case ch == nil:
		return Result{}, errors.Join(errClosed, unix.EINVAL)
	case f == nil:
		return Result{}, unix.EOPNOTSUPP
	}
	return f(m, call{s, ch}, c.Args)
}

func (m *Manager) OpenChannel() (number uint32, err error) {
	if len(m.channels) >= m.cfg.Channels {
		return 0, unix.EMFILE
	}
	for m.channels[m.nextCh] != nil {
		m.nextCh++
	}
	m.channels[m.nextCh] = &channel{number: m.nextCh}
	return m.nextCh, nil
}

// CloseChannel ends a channel and all its identifiers. It ignores an unknown channel.
func (m *Manager) CloseChannel(s Step, number uint32) {
	ch := m.channels[number]
	if ch == nil {
		return
	}
	for _, x := range m.nic.ids {
		if x.channel == ch {
			m.end(s, x)
		}
	}
	delete(m.channels, number)
}

// Listeners returns the number of identifiers that listen, without mirrors.
func (m *Manager) Listeners() (n int) {
	for _, x := range m.nic.listeners {
		if !x.mirror {
			n++
		}
	}
	return n
}

func (r *reports) newID(ch *channel, uid uint64) (*id, error) {
	if len(r.ids) >= maxHandle/r.cfg.Of {
		return nil, unix.ENOMEM
	}
	if err := r.cfg.Quota.Take(ID); err != nil {
		return nil, err
	}
	x := &id{handle: unused(r.ids, &r.next, r.cfg.Of), uid: uid, channel: ch}
	r.ids[x.handle] = x
	return x, nil
}

// unused returns the next number from *next on, in steps, that is no key of `used`, and moves *next
// behind it.
func unused[T any](used map[uint32]*T, next *uint32, step int) uint32 {
	for used[*next] != nil {
		*next = (*next + uint32(step)) & maxHandle
	}
	n := *next
	*next = (n + uint32(step)) & maxHandle
	return n
}

func (r *reports) find(handle uint32) (*id, error) {
	if x := r.ids[handle]; x != nil {
		return x, nil
	}
	return nil, unix.ENOENT
}

func (m *Manager) create(x call, a createID) (Result, error) {
	s, ok := spaces[a.Space]
	if !ok {
		return Result{}, unix.EINVAL
	}
	i, err := m.nic.newID(x.ch, a.UID)
	if err != nil {
		return Result{}, err
	}
	i.space, i.qpType = s.number, cmp.Or(s.qpType, a.QPType)
	return Result{Data: encode(Handle{i.handle})}, nil
}

func (m *Manager) destroy(x call, i *id, _ destroyID) (Result, error) {
	withdrawn := m.end(x.Step, i)
	return Result{Data: encode(Reported{i.reported}), Withdrawn: uint32(withdrawn), Channel: i.channel.number}, nil
}

// end removes an identifier, its connection or listener, the identifiers of peers' requests that
// the program has not seen, and its events. It returns the number of removed events.
func (m *Manager) end(s Step, x *id) (withdrawn int) {
	if m.nic.ids[x.handle] != x {
		return 0 // the identifier has ended with its listener
	}
	delete(m.nic.ids, x.handle)
	m.cfg.Quota.Add(ID, -1)
	x.answered()
	m.leaveAll(x)
	m.cfg.Ports.release(x)
	if x.listener != nil {
		delete(m.nic.listeners, x.listener)
		if s.NIC != nil {
			s.NIC.Unlisten(s.Now, x.listener, s.Out)
		}
	}
	if x.conn != nil {
		delete(m.nic.conns, x.conn)
		if s.NIC != nil && x.state != Ended && !x.conn.Left {
			s.NIC.Abort(s.Now, x.conn, s.Out)
		}
	}
	var unseen []*id
	for _, p := range x.channel.unread {
		if p.of == x && p.made != nil {
			unseen = append(unseen, p.made)
		}
	}
	withdrawn = x.channel.withdraw(m.cfg.Quota, func(p *pending) bool { return p.of == x || p.made == x })
	for _, made := range unseen {
		withdrawn += m.end(s, made)
	}
	return withdrawn
}
