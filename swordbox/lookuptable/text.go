package lookuptable

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmalab/rdmalab/nearest"
)

// entryKeys are the keys of entries.
var entryKeys = []string{"from", "to", "proto", "src", "dst", "dscp", "egress", "drop"}

// protocols are the names of protocols in the text of entries.
var protocols = map[string]uint8{"icmp": protoICMP, "tcp": protoTCP, "udp": protoUDP, "icmpv6": protoICMPv6}

// ParseEntry reads an entry of the table: words like "from=10.0.0.1:1234 to=10.0.0.2:80 proto=tcp dst=10.0.0.3:8080
// dscp=46". The key consists of `from`, `to` and `proto`, or of `to` alone if Flow is false. With masks, the first word
// is the number of the entry's mask, like "mask=2 to=10.0.0.0 proto=tcp drop". The function address returns the address
// of a host by its name. The function port returns the port of the switch to an address.
func (l *Layout) ParseEntry(text string, address func(string) (netip.Addr, error), port func(netip.Addr) int) (Entry, error) {
	p := parser{flow: l.Flow || len(l.Masks) > 0, masks: l.Masks, made: l.Hash.Key != nil, address: address, port: port, seen: make(map[string]bool)}
	e, err := p.parse(text)
	if err == nil {
		e.Key = l.Hash.keyed(e.Key)
	}
	return e, err
}

func (p *parser) parse(text string) (Entry, error) {
	for _, w := range strings.Fields(text) {
		key, value, _ := strings.Cut(w, "=")
		if p.seen[key] {
			return p.e, fmt.Errorf("entry %.100q has %s twice", text, key)
		}
		p.seen[key] = true
		if err := p.word(key, value); err != nil {
			return p.e, fmt.Errorf("entry %.100q: %w", text, err)
		}
	}
	if p.masks != nil {
		return p.e, p.checkMasked(text)
	}
	return p.e, p.check(text)
}

// parser holds an entry of which some words were read. seen has the keys of these words, and addrs
// the addresses in them. The other fields are parameters of ParseEntry.
type parser struct {
	e       Entry
	flow    bool
	made    bool   // the key may be one that Hash.Key has made, without a protocol
	masks   []Mask // of a table with masks
	address func(string) (netip.Addr, error)
	port    func(netip.Addr) int
	seen    map[string]bool
	addrs   []netip.Addr
}

func (p *parser) word(key, value string) (err error) {
	k, a := &p.e.Key, &p.e.Action
	switch key {
	case "from":
		k.Src, k.SrcPort, err = p.end(value)
	case "to":
		k.Dst, k.DstPort, err = p.end(value)
	case "proto":
		k.Proto, err = protocol(value)
	case "mask", "sport", "dport":
		return p.masked(key, value)
	case "src", "dst":
		op := OpSource
		if key == "dst" {
			op = OpDestination
		}
		if a.Ops&rewrites != 0 {
			return fmt.Errorf("it rewrites both src and dst; one entry rewrites one of them")
		}
		a.Ops |= op
		a.Addr, a.Port, err = p.end(value)
	case "dscp":
		n, e := strconv.ParseUint(value, 0, 6)
		if e != nil {
			return fmt.Errorf("dscp %.20q is no number from 0 to 63", value)
		}
		a.Ops, a.DSCP = a.Ops|OpDSCP, uint8(n)
	case "egress":
		a.Ops |= OpEgress
		if n, e := strconv.ParseUint(strings.TrimPrefix(value, "port"), 10, 16); e == nil && strings.HasPrefix(value, "port") {
			a.Egress = uint16(n)
			return nil
		}
		addr, e := p.address(value)
		if e != nil {
			return e
		}
		n := p.port(addr)
		if n < 0 {
			return fmt.Errorf("egress %.60q is no host of the rack", value)
		}
		a.Egress = uint16(n)
	case "drop":
		a.Ops |= OpDrop
		if value != "" {
			return fmt.Errorf("drop has no value")
		}
	default:
		return fmt.Errorf("%.40q is unknown; %san entry has from, to and proto, and src, dst, dscp, egress or drop", key, nearest.Meant(key, entryKeys))
	}
	return err
}

// masked reads a word that only entries under a mask have.
func (p *parser) masked(key, value string) error {
	if p.masks == nil {
		return fmt.Errorf("%s: the rule has no masks (match=ternary); a port is behind its address, as in to=10.0.0.1:80", key)
	}
	most := 0xffff
	if key == "mask" {
		most = len(p.masks)
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 || n > most || key == "mask" && n == 0 {
		return fmt.Errorf("%s %.20q is no number up to %d", key, value, most)
	}
	switch k := &p.e.Key; key {
	case "mask":
		k.Mask = uint8(n)
	case "sport":
		k.SrcPort = uint16(n)
	case "dport":
		k.DstPort = uint16(n)
	}
	return nil
}

// end reads an address, or a host's name, with or without a port.
func (p *parser) end(s string) (b [16]byte, port uint16, err error) {
	name, number, numbered := s, "", false
	if ap, err := netip.ParseAddrPort(s); err == nil {
		name, number, numbered = ap.Addr().String(), strconv.Itoa(int(ap.Port())), true
	} else if strings.Count(s, ":") == 1 {
		name, number, numbered = strings.Cut(s, ":")
	}
	if numbered {
		n, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return b, 0, fmt.Errorf("%.60q has no port from 0 to 65535 behind the colon", s)
		}
		port = uint16(n)
	}
	a, err := netip.ParseAddr(name)
	if err != nil {
		if a, err = p.address(name); err != nil {
			return b, 0, err
		}
	}
	if a = a.Unmap(); a.Zone() != "" || !a.IsValid() || p.masks == nil && (a.IsMulticast() || a.IsUnspecified()) {
		return b, 0, fmt.Errorf("%.60q is no address of a machine", name)
	}
	p.addrs = append(p.addrs, a)
	return bytesOf(a), port, nil
}

func protocol(s string) (uint8, error) {
	if n, ok := protocols[s]; ok {
		return n, nil
	}
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return 0, fmt.Errorf("proto %.20q is unknown; %suse tcp, udp, icmp, icmpv6 or a number up to 255", s, nearest.Meant(s, slices.Sorted(maps.Keys(protocols))))
	}
	return uint8(n), nil
}

// check returns what is wrong with the entry as a whole.
func (p *parser) check(text string) error {
	k := &p.e.Key
	switch {
	case !p.seen["to"]:
		return fmt.Errorf("entry %.100q has no destination; write to=ADDRESS", text)
	case p.flow && !p.made && (!p.seen["from"] || !p.seen["proto"]):
		return fmt.Errorf("entry %.100q: the rule matches flows; write from=ADDRESS[:PORT] to=ADDRESS[:PORT] proto=NAME", text)
	case !p.flow && (p.seen["from"] || p.seen["proto"] || k.DstPort != 0):
		return fmt.Errorf("entry %.100q: the rule matches destinations; write to=ADDRESS alone, without a port", text)
	case !p.made && (k.SrcPort != 0 || k.DstPort != 0) && k.Proto != protoTCP && k.Proto != protoUDP:
		return fmt.Errorf("entry %.100q: only tcp and udp have ports", text)
	}
	if k.Proto == protoUDP && k.DstPort == rocePort && p.e.Action.Ops&rewrites != 0 {
		return fmt.Errorf("entry %.100q: RoCEv2 packets cannot get another address, because their ICRC covers it; use dscp, egress or drop", text)
	}
	for _, a := range p.addrs {
		if a.Is4() != p.addrs[0].Is4() {
			return fmt.Errorf("entry %.100q mixes IPv4 and IPv6 addresses", text)
		}
	}
	k.V6 = !p.addrs[0].Is4()
	return nil
}

func (e *Entry) String() string {
	k := &e.Key
	var words []string
	if k.Src != [16]byte{} || k.Proto != 0 {
		words = append(words, "from="+endText(k.Src, k.SrcPort, k.V6))
	}
	words = append(words, "to="+endText(k.Dst, k.DstPort, k.V6))
	if k.Proto != 0 {
		words = append(words, "proto="+protocolName(k.Proto))
	}
	if s := e.Action.text(k.V6); s != "" {
		words = append(words, s)
	}
	return strings.Join(words, " ")
}

// endText returns the text of an address with its port; 0 means that there is none.
func endText(b [16]byte, port uint16, v6 bool) string {
	if a := addrOf(b, v6); port != 0 {
		return netip.AddrPortFrom(a, port).String()
	} else {
		return a.String()
	}
}

func protocolName(proto uint8) string {
	for n, p := range protocols {
		if p == proto {
			return n
		}
	}
	return strconv.Itoa(int(proto))
}

// text returns what the action does, as words of an entry. v6 says of which version an address is.
func (a *Action) text(v6 bool) string {
	s := a.rest()
	switch {
	case a.Ops&OpSource != 0:
		s = "src=" + endText(a.Addr, a.Port, v6) + " " + s
	case a.Ops&OpDestination != 0:
		s = "dst=" + endText(a.Addr, a.Port, v6) + " " + s
	}
	return strings.TrimSpace(s)
}

// rest returns the text of what the action does besides rewriting.
func (a *Action) rest() string {
	var words []string
	if a.Ops&OpDSCP != 0 {
		words = append(words, fmt.Sprintf("dscp=%d", a.DSCP))
	}
	if a.Ops&OpEgress != 0 {
		words = append(words, fmt.Sprintf("egress=port%d", a.Egress))
	}
	if a.Ops&OpDrop != 0 {
		words = append(words, "drop")
	}
	return strings.Join(words, " ")
}

// String says in captures what the action does.
func (a *Action) String() string {
	s := a.rest()
	if a.Ops&rewrites != 0 {
		s = strings.TrimSpace("addresses rewritten " + s)
	}
	return cmp.Or(s, "unchanged")
}
