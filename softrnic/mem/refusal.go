package mem

import (
	"fmt"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Refusal says why memory may not be accessed, with the values that decided it. Refused and
// RefusedLocal make one after an access has failed; a successful access needs none.
type Refusal struct {
	Fault Fault
	// Local is true for the L_Key of a work request, false for the R_Key of a peer's request.
	Local bool
	// Key, Addr, Length and Need are what was asked for; Length is in bytes.
	Key    uint32
	Addr   uint64
	Length uint64
	Need   verbs.Access
	PD     PD // protection domain of the queue pair
	// Known is true if the key names a region or a bound window, whose properties the fields below
	// have. Former is true if it may have named one earlier: it differs from the key of a region, or of one that was
	// deregistered, in its last byte alone. Live says that this region is registered, and its window bound.
	Known, Former, Live bool
	Region              uint32 // number of the region or window in its table, from 1
	Base, Size          uint64 // first address, and length in bytes
	Have                verbs.Access
	RegionPD            PD
	// Owner is the queue pair for whose peer alone a window is; 0 if there is no such limit.
	Owner wire.QPN
}

// Refused returns why Remote, with the same arguments, refuses an access. With Fault OK the access
// is allowed now; the caller knows then why it failed, as for memory that was unmapped.
func (t *Table) Refused(pd PD, qp wire.QPN, rkey uint32, va uint64, length uint32, need verbs.Access) Refusal {
	x := Refusal{Key: rkey, Addr: va, Length: uint64(length), Need: need, PD: pd}
	_, x.Fault = t.Remote(pd, qp, rkey, va, length, need)
	t.describe(&x, &t.remote, t.lookupRemote(rkey))
	return x
}

// RefusedLocal returns why Local, with the same arguments, refuses an access, as Refused does.
func (t *Table) RefusedLocal(pd PD, s verbs.SGE, write bool) Refusal {
	x := Refusal{Local: true, Key: s.LKey, Addr: s.Addr, Length: uint64(s.Length), PD: pd}
	if write {
		x.Need = verbs.LocalWrite
	}
	_, x.Fault = t.Local(pd, s, write)
	t.describe(&x, &t.local, t.lookupLocal(s.LKey))
	return x
}

// RefusedInvalidate returns why Invalidate, with the same arguments, refuses to invalidate a key, as a
// sentence without a full stop.
func (t *Table) RefusedInvalidate(pd PD, qp wire.QPN, rkey uint32, peer bool) string {
	x := Refusal{Key: rkey, PD: pd}
	r := t.lookupRemote(rkey)
	x.Fault = r.refusesInvalidate(pd, qp, peer)
	t.describe(&x, &t.remote, r)
	if x.Fault != BadAccess {
		return x.String()
	}
	key := fmt.Sprintf("R_Key %#x of region %d", x.Key, x.Region)
	switch {
	case r.whole == nil:
		return key + " can only be deregistered: it is neither that of a fast registration nor that of a window of type 2"
	case r.windows > 0:
		return fmt.Sprintf("%s has memory windows bound to it: %d", key, r.windows)
	}
	return fmt.Sprintf("%s allows %s, and a peer needs a remote right to invalidate it", key, Rights(x.Have))
}

// describe adds the properties of the region r that a key of the space names; nil means none.
func (t *Table) describe(x *Refusal, space *keySpace, r *Region) {
	i := space.fromKey(x.Key >> 8)
	x.Region = i + 1
	if r == nil {
		if x.Former = uint64(i) < uint64(len(t.slots)); x.Former {
			x.Live = t.slots[i].region != nil
		}
		return
	}
	x.Known, x.Base, x.Size, x.Have, x.RegionPD, x.Owner = true, r.base, r.size, r.access, r.pd, r.owner
}

// String returns the refusal as a sentence without a full stop.
func (x Refusal) String() string {
	key := fmt.Sprintf("R_Key %#x", x.Key)
	who := "the request"
	if x.Local {
		key, who = fmt.Sprintf("L_Key %#x", x.Key), "the work request"
	}
	switch x.Fault {
	case BadKey:
		switch {
		case x.Known:
			return fmt.Sprintf("%s is that of a memory window for the peer of queue pair %#x alone", key, uint32(x.Owner))
		case x.Live:
			return fmt.Sprintf("no region has %s: that of region %d has another last byte, which changes when it is registered again, invalidated or bound", key, x.Region)
		case x.Former:
			return fmt.Sprintf("%s was that of region %d, which is deregistered, invalidated or not bound", key, x.Region)
		}
		return fmt.Sprintf("no region has %s", key)
	case BadPD:
		return fmt.Sprintf("%s is that of region %d in protection domain %d, and the queue pair is in protection domain %d", key, x.Region, x.RegionPD, x.PD)
	case BadAccess:
		return fmt.Sprintf("%s of region %d allows %s, and %s needs %s", key, x.Region, Rights(x.Have), who, Rights(x.Need))
	case BadBounds:
		return fmt.Sprintf("%s of region %d covers %#x to %#x, and %s asks for %s at %#x", key, x.Region, x.Base, x.Base+x.Size-1, who, bytesOf(x.Length), x.Addr)
	case BadPage:
		return fmt.Sprintf("the program has unmapped a part of region %d (%s), and %s asks for %s at %#x", x.Region, key, who, bytesOf(x.Length), x.Addr)
	default:
		return fmt.Sprintf("%s of region %d allows the access now", key, x.Region)
	}
}

func bytesOf(n uint64) string {
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}

// rightNames has the access rights in the order in which Rights lists them.
var rightNames = []struct {
	right verbs.Access
	name  string
}{
	{verbs.LocalWrite, "local write"},
	{verbs.RemoteWrite, "remote write"},
	{verbs.RemoteRead, "remote read"},
	{verbs.RemoteAtomic, "remote atomic"},
	{verbs.MWBind, "window bind"},
	{verbs.FlushGlobal, "global flush"},
	{verbs.FlushPersistent, "persistent flush"},
}

// Rights returns the names of access rights, separated by commas. Each region allows local reads,
// which need no right.
func Rights(a verbs.Access) string {
	var names []string
	for _, r := range rightNames {
		if a&r.right != 0 {
			names = append(names, r.name)
			a &^= r.right
		}
	}
	if a != 0 {
		names = append(names, fmt.Sprintf("unknown rights %#x", uint32(a)))
	}
	if len(names) == 0 {
		return "only local reads"
	}
	return strings.Join(names, ", ")
}
