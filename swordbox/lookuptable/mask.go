package lookuptable

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/rackfile/rules"
)

// MaxMasks is how many masks a rule of match=ternary can have. A packet whose flow is not in the
// cache takes one READ for each.
const MaxMasks = 8

// Mask says which bits of a packet's key an entry compares (match=ternary, tuple space search). The
// entries of a mask are found by their exact bits under the mask.
type Mask struct {
	text string // for the texts of errors
	// v4 and v6 have the bits that are compared in keys of IPv4 and IPv6. V6 is true if the version
	// of IP is compared: the mask has bits of addresses.
	v4, v6 Key
	// not4 and not6 are true if no packet of IPv4 or IPv6 has an entry under this mask, because the
	// mask has bits of addresses of the other version.
	not4, not6 bool
}

// of returns the bits of a key under the mask with a number from 1 on. ok is false if no key of this
// version of IP has an entry under it.
func (m *Mask) of(k *Key, number int) (masked Key, ok bool) {
	bits, skip := &m.v4, m.not4
	if k.V6 {
		bits, skip = &m.v6, m.not6
	}
	for i := range k.Src {
		masked.Src[i], masked.Dst[i] = k.Src[i]&bits.Src[i], k.Dst[i]&bits.Dst[i]
	}
	masked.SrcPort, masked.DstPort, masked.Proto = k.SrcPort&bits.SrcPort, k.DstPort&bits.DstPort, k.Proto&bits.Proto
	masked.V6, masked.Mask = k.V6 && bits.V6, uint8(number)
	return masked, !skip
}

// Masks are the masks of a rule, the one with the highest priority first.
type Masks []Mask

// parts are the words of a mask, and anyPart is a mask without bits: all packets have its one entry.
var parts = []string{"from", "to", "proto", "sport", "dport", anyPart}

const anyPart = "any"

// ParseMasks reads masks in the order of their priority, the highest first. Commas separate masks, and
// plus signs the parts of one, like "from/24+to+proto+dport,to/0.0.0.255,any".
func ParseMasks(text string) (list Masks, err error) {
	words := strings.Split(text, ",")
	if len(words) > MaxMasks {
		return nil, fmt.Errorf("%d masks; at most %d are allowed", len(words), MaxMasks)
	}
	for _, w := range words {
		m := Mask{text: w}
		seen := make(map[string]bool)
		for _, part := range strings.Split(w, "+") {
			name, bits, cut := strings.Cut(part, "/")
			if seen[name] || name == anyPart && (cut || w != anyPart) {
				return nil, fmt.Errorf("mask %.60q has %s twice, or beside others", w, name)
			}
			seen[name] = true
			if err := m.part(name, bits, cut); err != nil {
				return nil, fmt.Errorf("mask %.60q: %w", w, err)
			}
		}
		for i := range list {
			if list[i].same(&m) {
				return nil, fmt.Errorf("masks %.60q and %.60q are the same", list[i].text, w)
			}
		}
		list = append(list, m)
	}
	return list, nil
}

func (m *Mask) same(o *Mask) bool {
	return m.v4 == o.v4 && m.v6 == o.v6 && m.not4 == o.not4 && m.not6 == o.not6
}

// part adds a part with its bits. cut is true if bits follow the name.
func (m *Mask) part(name, bits string, cut bool) error {
	n := uint64(0xffff)
	var err error
	switch name {
	case anyPart:
		return nil
	case "from":
		return m.address(bits, cut, &m.v4.Src, &m.v6.Src)
	case "to":
		return m.address(bits, cut, &m.v4.Dst, &m.v6.Dst)
	case "proto":
		if cut {
			return fmt.Errorf("proto has no bits")
		}
		m.v4.Proto, m.v6.Proto = 0xff, 0xff
		return nil
	case "sport", "dport":
		if cut {
			n, err = strconv.ParseUint(bits, 0, 16)
		}
		if err != nil || n == 0 {
			return fmt.Errorf("%s/%.20s: the bits of a port are a number from 1 to 0xffff", name, bits)
		}
	default:
		return fmt.Errorf("%.40q is unknown; %sa mask has %s", name, nearest.Meant(name, parts), strings.Join(parts, ", "))
	}
	if name == "sport" {
		m.v4.SrcPort, m.v6.SrcPort = uint16(n), uint16(n)
	} else {
		m.v4.DstPort, m.v6.DstPort = uint16(n), uint16(n)
	}
	return nil
}

// address adds bits of an address: all, a number of leading bits for both versions of IP, or the bits
// of one version in the form of an address.
func (m *Mask) address(bits string, cut bool, v4, v6 *[16]byte) error {
	n := 128
	if cut {
		if a, err := netip.ParseAddr(bits); err == nil && a.Zone() == "" {
			if a.Is4() {
				*v4, m.v4.V6, m.not6 = bytesOf(a), true, true
			} else {
				*v6, m.v6.V6, m.not4 = a.As16(), true, true
			}
			if m.not4 && m.not6 {
				return fmt.Errorf("it has bits of IPv4 and of IPv6; use two masks")
			}
			return nil
		}
		var err error
		if n, err = strconv.Atoi(bits); err != nil || n < 1 || n > 128 {
			return fmt.Errorf("%.40q is neither a number of leading bits from 1 to 128 nor an address", bits)
		}
	}
	for i := range n {
		if i < 32 {
			v4[i/8] |= 0x80 >> (i % 8)
		}
		v6[i/8] |= 0x80 >> (i % 8)
	}
	m.v4.V6, m.v6.V6 = true, true
	return nil
}

// addressed reports whether keys under the mask name the version of IP.
func (m *Mask) addressed() bool { return m.v4.V6 || m.v6.V6 }

// tuple returns the key by which a packet with key k is looked up next, from mask number i on, and
// the number behind that mask; ok is false if there is none. Without masks there is one such key, k.
func (m Masks) tuple(k *Key, i int) (masked Key, next int, ok bool) {
	if len(m) == 0 {
		return *k, 1, i == 0
	}
	for ; i < len(m); i++ {
		if masked, ok = m[i].of(k, i+1); ok {
			return masked, i + 1, true
		}
	}
	return masked, i, false
}

// parsedMasks reads the value of the key masks; "" is none.
func parsedMasks(text string) (Masks, error) {
	if text == "" {
		return nil, nil
	}
	return ParseMasks(text)
}

// check returns why a valid rule cannot have these masks. The packets of a table with masks are in the
// memory of one server, because each may have its entry under any mask.
func (m Masks) check(r *rules.Rule) error {
	ternary := r.Options[keyMatch] == matches[2]
	switch {
	case ternary != (len(m) > 0):
		return fmt.Errorf("%s=%s needs the key %s, and no other match has it", keyMatch, matches[2], keyMasks)
	case ternary && strings.Contains(r.Options[keyTable], ","):
		return fmt.Errorf("%s=%s: name one server in %s; all packets and entries are in its memory", keyMatch, matches[2], keyTable)
	case ternary && r.Mode == rules.Published:
		return fmt.Errorf("%s=%s: the published rule compares no keys; leave out mode=published", keyMatch, matches[2])
	}
	return nil
}

// Text returns the text of an entry, which ParseEntry reads.
func (l *Layout) Text(e *Entry) string {
	if n := int(e.Key.Mask); n > 0 && n <= len(l.Masks) {
		return l.Masks[n-1].entry(e)
	}
	return e.String()
}

// entry returns the text of an entry under the mask: each part that the mask has.
func (m *Mask) entry(e *Entry) string {
	k, bits := &e.Key, &m.v4
	if k.V6 {
		bits = &m.v6
	}
	words := []string{"mask=" + strconv.Itoa(int(k.Mask))}
	add := func(has bool, key, value string) {
		if has {
			words = append(words, key+"="+value)
		}
	}
	add(bits.Src != [16]byte{}, "from", addrOf(k.Src, k.V6).String())
	add(bits.Dst != [16]byte{}, "to", addrOf(k.Dst, k.V6).String())
	add(bits.Proto != 0, "proto", protocolName(k.Proto))
	add(bits.SrcPort != 0, "sport", strconv.Itoa(int(k.SrcPort)))
	add(bits.DstPort != 0, "dport", strconv.Itoa(int(k.DstPort)))
	if s := e.Action.text(k.V6); s != "" {
		words = append(words, s)
	}
	return strings.Join(words, " ")
}

// checkMasked returns what is wrong with an entry under a mask, as a whole, and sets the fields of its
// key that follow from the mask.
func (p *parser) checkMasked(text string) error {
	k := &p.e.Key
	if !p.seen["mask"] {
		return fmt.Errorf("entry %.100q: write mask=N, the number of its mask from 1 to %d", text, len(p.masks))
	}
	for _, a := range p.addrs {
		if a.Is4() != p.addrs[0].Is4() {
			return fmt.Errorf("entry %.100q mixes IPv4 and IPv6 addresses", text)
		}
	}
	m := &p.masks[k.Mask-1]
	k.V6 = len(p.addrs) > 0 && !p.addrs[0].Is4()
	bits := &m.v4
	if k.V6 {
		bits = &m.v6
	}
	masked, fits := m.of(k, int(k.Mask))
	if p.e.Action.Ops&rewrites != 0 && !m.addressed() {
		return fmt.Errorf("entry %.100q rewrites addresses, and mask %.60q has packets of IPv4 and IPv6", text, m.text)
	}
	if !m.addressed() {
		k.V6 = false
	}
	for key, has := range map[string]bool{"from": bits.Src != [16]byte{}, "to": bits.Dst != [16]byte{}, "proto": bits.Proto != 0} {
		if p.seen[key] != has {
			return fmt.Errorf("entry %.100q: mask %.60q has %s, and the entry has not, or the other way round", text, m.text, key)
		}
	}
	if masked != *k || !fits {
		return fmt.Errorf("entry %.100q has bits outside of its mask %.60q", text, m.text)
	}
	return nil
}
