package dump

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// appendText appends the line of text for packet r. start is as in appendTime.
func (r *Record) appendText(b []byte, start *int64) []byte {
	b = appendTime(b, r.Time, start)
	if r.Name != "" {
		b = fmt.Appendf(b, " [%s]", r.Name)
	}
	f := &r.Frame
	switch r.Verdict {
	case Other:
		b = appendOther(append(b, ' '), r.Data)
	case Malformed:
		b = fmt.Appendf(appendPeers(append(b, ' '), f), " %v", r.Err)
	default:
		b = appendExtras(fmt.Appendf(b, " %v", f), f)
	}
	b = append(b, " len="...)
	b = strconv.AppendInt(b, int64(r.OrigLen), 10)
	if r.Verdict != Other && r.Verdict != Malformed {
		b = fmt.Appendf(b, " icrc=%s", r.Verdict)
	}
	if r.Dispute != nil {
		b = fmt.Appendf(b, " disputed=%q", r.Dispute)
	}
	for _, c := range r.Comments {
		b = append(append(b, " # "...), OneLine(c)...)
	}
	return append(b, '\n')
}

// appendPeers appends the IP addresses, or the Ethernet addresses if parsing failed before the IP
// header.
func appendPeers(b []byte, f *wire.Frame) []byte {
	if src, dst := f.SrcAddr(), f.DstAddr(); !src.IsUnspecified() || !dst.IsUnspecified() {
		return fmt.Appendf(b, "%v > %v", src, dst)
	}
	return fmt.Appendf(b, "%v > %v", f.Eth.Src, f.Eth.Dst)
}

// appendTime appends seconds since start, or the time of day if `start` is nil.
func appendTime(b []byte, now int64, start *int64) []byte {
	if start == nil {
		return time.Unix(0, now).UTC().AppendFormat(b, "15:04:05.000000000")
	}
	d, sign := now-*start, ""
	if d < 0 {
		d, sign = -d, "-"
	}
	return fmt.Appendf(b, "%s%d.%09d", sign, d/1e9, d%1e9)
}

// appendExtras appends the fields that are printed only if they do not have their usual values.
func appendExtras(b []byte, f *wire.Frame) []byte {
	tos := f.IPv4.TOS
	if f.V6 {
		tos = f.IPv6.TrafficClass
	}
	if tos != 0 {
		b = fmt.Appendf(b, " tos=%#x", tos)
	}
	if f.Eth.Tagged {
		b = fmt.Appendf(b, " vlan=%d", f.Eth.VLAN())
	}
	if f.BTH.PKey != wire.DefaultPKey {
		b = fmt.Appendf(b, " pkey=%#x", f.BTH.PKey)
	}
	if f.BTH.Version != 0 {
		b = fmt.Appendf(b, " tver=%d", f.BTH.Version)
	}
	return b
}

// appendOther appends source and destination of a frame that is not RoCEv2.
func appendOther(b, data []byte) []byte {
	var eth wire.Ethernet
	if eth.Parse(data) != nil {
		return append(b, "no Ethernet frame"...)
	}
	rest := data[eth.Len():]
	var v4 wire.IPv4
	var v6 wire.IPv6
	switch {
	case message(data, &b):
		return b
	case eth.Type == wire.EtherTypeARP:
		return fmt.Appendf(b, "%v > %v ARP", eth.Src, eth.Dst)
	case eth.Type == wire.EtherTypeIPv4 && v4.Parse(rest) == nil:
		f := wire.Frame{IPv4: v4}
		return fmt.Appendf(b, "%v > %v %s", f.SrcAddr(), f.DstAddr(), protocolName(v4.Protocol))
	case eth.Type == wire.EtherTypeIPv6 && v6.Parse(rest) == nil:
		f := wire.Frame{V6: true, IPv6: v6}
		return fmt.Appendf(b, "%v > %v %s", f.SrcAddr(), f.DstAddr(), protocolName(v6.NextHeader))
	}
	return fmt.Appendf(b, "%v > %v EtherType %#04x", eth.Src, eth.Dst, eth.Type)
}

// message appends the text of a 1RMA message (see softrnic/wire/onerma), or which field of the message is
// wrong. It returns false if the frame is no such message, or if its IP or UDP header is malformed.
func message(data []byte, b *[]byte) bool {
	var f onerma.Frame
	err := onerma.ParseFrame(data, &f)
	var malformed *onerma.FormatError
	switch {
	case err == nil:
		*b = append(*b, f.String()...)
	case errors.As(err, &malformed):
		*b = append(*b, malformed.Error()...)
	default:
		return false
	}
	return true
}

// protocols has the names of the IP protocols that are usual on a rack.
var protocols = map[uint8]string{1: "ICMP", 6: "TCP", wire.ProtocolUDP: "UDP", 58: "ICMPv6"}

func protocolName(n uint8) string {
	return cmp.Or(protocols[n], fmt.Sprintf("IP protocol %d", n))
}

// OneLine replaces control characters of a comment, which a terminal might interpret, by spaces.
func OneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}
