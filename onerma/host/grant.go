package host

import (
	"encoding/hex"
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// Grant is what the owner of a region gives a process: the name of the region, and a key K_d for
// each operation, in hexadecimal. A program sends it to the process over a channel that it trusts.
type Grant struct {
	Region nic.RegionID `json:"region"`
	Length uint64       `json:"length"` // bytes
	Read   string       `json:"read"`
	Write  string       `json:"write"`
	Rekey  string       `json:"rekey"`
}

func grantOf(r *nic.Region, key nic.Key, length int, to netip.Addr, pid nic.PID) Grant {
	of := func(op onerma.Op) string {
		k := nic.Derive(key, to, pid, op)
		return hex.EncodeToString(k[:])
	}
	return Grant{Region: r.ID(), Length: uint64(length), Read: of(onerma.Read), Write: of(onerma.Write), Rekey: of(onerma.Rekey)}
}

// Remote is memory of a peer that a process may use.
type Remote struct {
	Addr   netip.Addr
	Region nic.RegionID
	Length uint64
	// read, write and rekey are the ciphers of the keys K_d, each for one operation; nil means that
	// the process has no key for this operation.
	read, write, rekey *nic.Cipher
	// next has the keys that will replace these, if the owner has announced any. The ciphers and next are
	// used only with exclusive use of the process's NIC.
	next *Remote
}

// announced takes keys of which the owner says that they are coming, or that they have replaced the former
// ones. While they are coming, transfers use them as soon as the former ones are refused. If others were coming
// before, these have replaced the former ones meanwhile.
func (p *Process) announced(r, keys *Remote, coming bool) {
	p.nic.exclusive(func(clock.Time) {
		if !coming {
			r.read, r.write, r.rekey, r.next = keys.read, keys.write, keys.rekey, nil
			return
		}
		if x := r.next; x != nil {
			r.read, r.write, r.rekey = x.read, x.write, x.rekey
		}
		r.next = keys
		if !p.gone {
			p.exec.Renew(r.Addr, r.Region, onerma.Read, keys.read)
			p.exec.Renew(r.Addr, r.Region, onerma.Write, keys.write)
		}
	})
}

// keys returns the key for an operation, and the one that will replace it; nil means that there is none.
func (r *Remote) keys(op onerma.Op) (key, next *nic.Cipher) {
	of := func(r *Remote) *nic.Cipher {
		if op == onerma.Write {
			return r.write
		}
		return r.read
	}
	if r.next != nil {
		next = of(r.next)
	}
	return of(r), next
}

// Keyed returns memory on the NIC with address addr, for a process that has a key for one operation
// (op) only, for example from a service that derives keys itself.
func Keyed(addr netip.Addr, id nic.RegionID, length uint64, op onerma.Op, key *nic.Cipher) *Remote {
	r := &Remote{Addr: addr.Unmap(), Region: id, Length: length}
	switch op {
	case onerma.Read:
		r.read = key
	case onerma.Write:
		r.write = key
	case onerma.Rekey:
		r.rekey = key
	}
	return r
}

// Remote returns the memory that a grant names, on the NIC with address addr. An error says which
// key is malformed, or that the address is wrong.
func (g *Grant) Remote(addr netip.Addr) (*Remote, error) {
	r := &Remote{Addr: addr.Unmap(), Region: g.Region, Length: g.Length}
	for _, k := range []struct {
		op   onerma.Op
		text string
		to   **nic.Cipher
	}{{onerma.Read, g.Read, &r.read}, {onerma.Write, g.Write, &r.write}, {onerma.Rekey, g.Rekey, &r.rekey}} {
		b, err := hex.DecodeString(k.text)
		if err != nil || len(b) != len(nic.Key{}) {
			return nil, fmt.Errorf("1RMA: the grant has %.40q as key for %v: want %d bytes in hexadecimal", k.text, k.op, len(nic.Key{}))
		}
		*k.to = nic.NewCipher(nic.Key(b))
	}
	if !r.Addr.Is4() {
		return nil, fmt.Errorf("1RMA: the NIC has the address %v: want an IPv4 address", addr)
	}
	return r, nil
}
