package ucma

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// set is a command that sets an option of an identifier.
func set(id, name uint32, on bool) Command {
	return Command{Op: SetOption, Args: binary.NativeEndian.AppendUint32(encode(setOption{ID: id, Name: name, Len: 4}), uint32(flag(on)))}
}

// binding is how an identifier is bound to port 7: its address, and the options that are set
// before.
type binding struct {
	at   string
	sets map[uint32]bool
}

var (
	only   = map[uint32]bool{optionOnly: true}
	all    = map[uint32]bool{optionOnly: false}
	shared = map[uint32]bool{optionReuse: true}

	any4, mine4, other4 = binding{"0.0.0.0", nil}, binding{"10.77.0.1", nil}, binding{"10.77.0.9", nil}
	any6, mine6         = binding{"::", nil}, binding{"fd00:77::1", nil}
	only6, onlyMine6    = binding{"::", only}, binding{"fd00:77::1", only}
	all4                = binding{"0.0.0.0", all}
	shared4, sharedMine = binding{"0.0.0.0", shared}, binding{"10.77.0.1", shared}
	shared6             = binding{"::", shared}
	loop4, loop6        = binding{"127.0.0.1", nil}, binding{"::1", nil}
	onlyLoop6           = binding{"::1", only}
)

// neighbours is a NIC with three addresses and two programs, each with an identifier.
func neighbours(t *testing.T) (n *nic, programs [2]*Manager) {
	t.Helper()
	n = newNIC(t)
	programs = [2]*Manager{n.m, n.program(Config{})}
	for _, n.m = range programs {
		for _, ip := range []string{other4.at, mine6.at} {
			n.m.cfg.Device.GIDs = append(n.m.cfg.Device.GIDs, verbs.GIDOf(netip.MustParseAddr(ip)))
		}
		if _, err := n.m.OpenChannel(); err != nil {
			t.Fatal(err)
		}
		n.do(Command{Op: CreateID, Args: encode(createID{UID: 1, Space: spaceTCP})})
	}
	return n, programs
}

// bind binds the identifier of a program.
func (n *nic) bind(m *Manager, b binding) error {
	n.m = m
	for name, on := range b.sets {
		n.do(set(0, name, on))
	}
	at := addressOf(netip.AddrPortFrom(netip.MustParseAddr(b.at), 7))
	_, err := n.execute(Command{Op: BindIP, Args: encode(bindIP{Addr: at})})
	return err
}

func (n *nic) listen(m *Manager) error {
	n.m = m
	_, err := n.execute(Command{Op: Listen, Args: encode(listen{})})
	return err
}

// Two identifiers may have the same port, or not, by the rules of the kernel; those that may, both
// listen, unless they have the same address.
func TestPairsOfPorts(t *testing.T) {
	const wild, same = unix.EADDRNOTAVAIL, unix.EADDRINUSE
	for _, c := range []struct {
		a, b         binding
		bind, listen error
	}{
		{any4, any4, wild, nil},
		{any4, mine4, wild, nil},
		{mine4, mine4, same, nil},
		{mine4, other4, nil, nil},
		{any4, any6, wild, nil},
		{any4, only6, nil, nil},
		{any4, mine6, wild, nil},
		{any4, onlyMine6, nil, nil},
		{all4, only6, wild, nil},
		{mine4, any6, wild, nil},
		{mine4, only6, nil, nil},
		{mine4, mine6, nil, nil},
		{mine4, onlyMine6, nil, nil},
		{any6, any6, wild, nil},
		{any6, only6, wild, nil},
		{any6, mine6, wild, nil},
		{only6, onlyMine6, wild, nil},
		{mine6, mine6, same, nil},
		{mine6, onlyMine6, same, nil},
		{loop4, loop4, wild, nil}, // loopback addresses are any address
		{loop4, any4, wild, nil},
		{loop4, mine4, wild, nil},
		{loop4, mine6, wild, nil},
		{loop4, onlyMine6, nil, nil},
		{loop6, mine4, wild, nil},
		{loop6, loop4, wild, nil},
		{onlyLoop6, loop4, nil, nil},
		{sharedMine, mine4, same, nil},
		{shared4, mine4, wild, nil},
		{sharedMine, sharedMine, nil, same},
		{shared4, sharedMine, nil, wild},
		{shared4, shared6, nil, wild},
	} {
		for _, p := range [][2]binding{{c.a, c.b}, {c.b, c.a}} {
			n, programs := neighbours(t)
			if err := n.bind(programs[0], p[0]); err != nil {
				t.Fatalf("%v: %v", p[0], err)
			}
			if err := n.bind(programs[1], p[1]); !errors.Is(err, c.bind) {
				t.Errorf("%v beside %v: %v, want %v", p[1], p[0], err, c.bind)
			}
			if c.bind != nil {
				continue
			}
			for _, m := range programs {
				if err := n.listen(m); !errors.Is(err, c.listen) {
					t.Errorf("%v and %v listen: %v, want %v", p[0], p[1], err, c.listen)
				}
			}
			if c.listen == nil {
				continue
			}
			n.m = programs[1]
			n.do(Command{Op: DestroyID, Args: encode(destroyID{})})
			if err := n.listen(programs[0]); err != nil {
				t.Errorf("%v listens alone: %v", p[0], err)
			}
			n.m = programs[1]
			n.m.nic.next = 0 // the handle of the one before
			n.do(Command{Op: CreateID, Args: encode(createID{UID: 1, Space: spaceTCP})})
			if err := n.bind(programs[1], p[1]); !errors.Is(err, c.listen) {
				t.Errorf("%v beside a listener at %v: %v, want %v", p[1], p[0], err, c.listen)
			}
		}
	}
}

// The options that decide about a port can be set as long as the kernel allows it.
func TestPortOptions(t *testing.T) {
	n, programs := neighbours(t)
	try := func(what string, want error, c Command) {
		t.Helper()
		if _, err := n.execute(c); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	if err := n.bind(programs[0], any6); err != nil {
		t.Fatal(err)
	}
	try("only, when bound", nil, set(0, optionOnly, true))
	try("reuse, when bound", nil, set(0, optionReuse, true))
	try("no reuse, when bound", unix.EINVAL, set(0, optionReuse, false))
	if err := n.bind(programs[1], any4); err != nil {
		t.Errorf("IPv4 beside IPv6 alone: %v", err)
	}
	if err := n.listen(programs[0]); err != nil {
		t.Error(err)
	}
	try("only, of a listener", unix.EINVAL, set(0, optionOnly, false))
	try("reuse, of a listener", unix.EINVAL, set(0, optionReuse, true))
}
