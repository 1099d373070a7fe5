package rackfile

import (
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// small is a rack file that tests modify.
const small = `name: small
hosts:
  - name: ms0
    role: memory
  - name: cn[0-1]
    role: compute
`

// full has every key of a rack file.
const full = `name: full
seed: 0x2a
connect: cm
cable: memory
priority: realtime
group: rdma
onerma: {rtt: 1ms, dispatch: 3ms, timeout: 7ms, window: 8KiB, rotate: 1m}
mtu: 1500
subnet: 192.168.7.0/28
subnet6: fd12::/120
switch:
  program: forward
  queue: 64
  spin: 10us
  cpu: 0
hosts:
  - name: ms0
    role: memory
    memory: 1GiB
    spin: 0s
  - {name: "cn[00-01]", role: compute, cpu: 1}
  - name: md0
    role: metadata
    cpu: none
    gso: off
    pkeys: [0xffff, 0x8001, 2]
    tos: 0x68
    window: 1024
    recovery: irn
    lenient: true
    distinctKeys: true
    quota: {programs: 3, pds: 4, mrs: 5, mws: 6, ahs: 7, cqs: 8, srqs: 9, qps: 10, attachments: 11, ids: 12, joins: 13, events: 14, channels: 15, memory: 1MiB, queueMemory: 2MiB, deviceMemory: 3KiB, shared: 4MiB, reserve: 20}
faults:
  - link: cn00
    kind: loss
    probability: 10%
    dir: up
    for: 10s
    seed: 7
  - {id: slow, link: ms0, kind: delay, delay: 1ms, jitter: 100us}
  - {link: ms0, kind: rate, bitsPerSecond: 2.5Gbit, dir: down}
  - link: cn01
    kind: loss
    count: 2
    match:
      opcodes: [RC_WRITE_LAST, RC_ACK]
      qpn: 0x11
      psnOffset: 3
      transmission: 1
      samePacket: true
  - {link: cn01, kind: duplicate, match: {class: ack, psn: 100}}
`

func TestParseFull(t *testing.T) {
	r, err := Parse([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	qpn, psn, offset := wire.QPN(0x11), wire.PSN(100), 3
	v4, v6 := netip.MustParseAddr, netip.MustParseAddr
	mac := func(n byte) wire.MAC {
		m := macOf(42, 0)
		m[5] = n
		return m
	}
	want := &Rack{
		Name: "full", Seed: 42, LinkMTU: 1500, Connect: ConnectCM, Cable: CableMemory, Priority: PriorityRealtime, Group: "rdma",
		OneRMA: &OneRMA{RTT: time.Millisecond, Dispatch: 3 * time.Millisecond, Timeout: 7 * time.Millisecond, Window: 8192, Rotate: time.Minute},
		Subnet: netip.MustParsePrefix("192.168.7.0/28"), Subnet6: netip.MustParsePrefix("fd12::/120"),
		Switch: Switch{
			Program: "forward", Queue: 64, Spin: 10 * time.Microsecond, CPU: 0,
			IPv4: v4("192.168.7.1"), IPv6: v6("fd12::1"), MAC: mac(1),
		},
		Hosts: []Host{
			{Name: "ms0", Role: Memory, Port: "ms0", IPv4: v4("192.168.7.2"), IPv6: v6("fd12::2"), MAC: mac(2), Memory: 1 << 30, CPU: AutoCPU, GSO: true},
			{Name: "cn00", Role: Compute, Port: "cn00", IPv4: v4("192.168.7.3"), IPv6: v6("fd12::3"), MAC: mac(3), Spin: defaultSpin, CPU: 1, GSO: true},
			{Name: "cn01", Role: Compute, Port: "cn01", IPv4: v4("192.168.7.4"), IPv6: v6("fd12::4"), MAC: mac(4), Spin: defaultSpin, CPU: 1, GSO: true},
			{Name: "md0", Role: Metadata, Port: "md0", IPv4: v4("192.168.7.5"), IPv6: v6("fd12::5"), MAC: mac(5), Memory: 16 << 20, Spin: defaultSpin, CPU: NoCPU, PKeys: []uint16{0xffff, 0x8001, 2}, TOS: 0x68, Window: 1024, Recovery: "irn", Strictness: Strictness{Lenient: true, DistinctKeys: true}, Quota: Quota{
				Programs: 3, PDs: 4, MRs: 5, MWs: 6, AHs: 7, CQs: 8, SRQs: 9, QPs: 10, Attachments: 11, IDs: 12, Joins: 13, Events: 14, Channels: 15,
				Memory: 1 << 20, QueueMemory: 2 << 20, DeviceMemory: 3 << 10, Shared: 4 << 20, Reserve: 20,
			}},
		},
		Faults: []fault.Rule{
			{Link: "cn00", Kind: fault.Loss, Probability: 0.1, Dir: fault.Up, For: 10 * time.Second, Seed: 7},
			{ID: "slow", Link: "ms0", Kind: fault.Delay, Delay: time.Millisecond, Jitter: 100 * time.Microsecond},
			{Link: "ms0", Kind: fault.Rate, BitsPerSecond: 2_500_000_000, Dir: fault.Down},
			{Link: "cn01", Kind: fault.Loss, Count: 2, Match: fault.Match{
				Opcodes: []wire.Opcode{wire.RCWriteLast, wire.RCAck}, QPN: &qpn, PSNOffset: &offset, Transmission: 1, SamePacket: true,
			}},
			{Link: "cn01", Kind: fault.Duplicate, Match: fault.Match{Class: "ack", PSN: &psn}},
		},
	}
	if !reflect.DeepEqual(r, want) {
		t.Errorf("got  %+v\nwant %+v", r, want)
	}
}

// The NICs without connections have defaults, and exist only if the rack file says so.
func TestOneRMADefaults(t *testing.T) {
	r, err := Parse([]byte("hosts: [{name: a, role: compute}]\nonerma: {}"))
	if err != nil || r.OneRMA == nil || *r.OneRMA != (OneRMA{RTT: 4 * time.Millisecond, Dispatch: 8 * time.Millisecond, Timeout: 20 * time.Millisecond, Window: 512 << 10}) {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := Parse([]byte("hosts: [{name: a, role: compute}]")); err != nil || r.OneRMA != nil {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestNameIsOptional(t *testing.T) {
	r, err := Parse([]byte("hosts: [{name: a, role: compute}]"))
	if err != nil || r.Name != DefaultName {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Parse([]byte("name: a")); err == nil || !strings.Contains(err.Error(), `:1:1: a rack file lacks the key "hosts"`) {
		t.Errorf("a rack without hosts: %v", err)
	}
}

func TestEncodeDecode(t *testing.T) {
	for _, text := range []string{small, full} {
		r, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(b)
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("decoded %+v, %v; want %+v", got, err, r)
		}
	}
	for _, b := range []string{"", "null", "{}", `{"name":"../x"}`} {
		if _, err := Decode([]byte(b)); err == nil {
			t.Errorf("Decode(%q) went well", b)
		}
	}
}

func TestLookups(t *testing.T) {
	r, err := Parse([]byte(small))
	if err != nil {
		t.Fatal(err)
	}
	h, i, ok := r.Host("cn1")
	if !ok || i != 2 || h.Name != "cn1" {
		t.Errorf("Host(cn1) = %v, %d, %v", h, i, ok)
	}
	if _, _, ok := r.Host("cn2"); ok {
		t.Error("Host(cn2) was found")
	}
	for _, a := range []netip.Addr{h.IPv4, h.IPv6, netip.AddrFrom16(h.IPv4.As16())} {
		if got, ok := r.ByAddr(a); !ok || got.Name != "cn1" {
			t.Errorf("ByAddr(%v) = %v, %v", a, got, ok)
		}
	}
	if p := r.Prefix4(h); p.String() != "10.77.0.4/24" {
		t.Errorf("Prefix4 = %v", p)
	}
	if p := r.Prefix6(h); p.String() != "fd00:77::4/64" {
		t.Errorf("Prefix6 = %v", p)
	}
	if n := len(r.ByRole(Compute)); n != 2 {
		t.Errorf("%d compute hosts", n)
	}
}

// mistakes has in each line one mistake: old is replaced by new in small, and want is the line and text
// of the error.
var mistakes = []struct{ old, new, want string }{
	{"name: small", "name: Small", `1:7: name: rack name "Small" must begin with a lower-case letter`},
	{"name: small", "name: a/../b", `1:7: name: rack name "a/../b" has the character '/'`},
	{"name: small", "name:", `1:1: key "name" has no value`},
	{"hosts:", "host:", `2:1: unknown key "host" in a rack file; did you mean hosts? known keys: name, seed`},
	{"name: small", "name: small\nname: again", `2:1: mapping key "name" already defined at [1:1]`},
	{"name: small", "name: small\nsede: 1", `2:1: unknown key "sede" in a rack file; did you mean seed? known keys: name, seed`},
	{"name: small", "name: small\nseed: -1", `2:7: seed: "-1" is no seed`},
	{"name: small", "name: small\nmtu: 4200B", `2:6: mtu: "4200B" is no whole number`},
	{"name: small", "name: small\nmtu: 100", `2:6: mtu: 100 is out of bounds; use a number from 1280 to 9216`},
	{"name: small", "name: small\nmtu: [1]", `2:6: mtu must be a single value, but is a list`},
	{"name: small", "name: small\nsubnet: 10.0.0.0", `2:9: subnet: "10.0.0.0" is no network; write it like 10.77.0.0/24`},
	{"name: small", "name: small\nsubnet: 10.0.0.1/24", `2:9: subnet: 10.0.0.1/24 has host bits set; use 10.0.0.0/24`},
	{"name: small", "name: small\nsubnet: fd00::/64", `2:9: subnet: "fd00::/64" is no network`},
	{"name: small", "name: small\nsubnet6: 10.0.0.0/8", `2:10: subnet6: "10.0.0.0/8" is no network; write it like fd00:77::/64`},
	{"name: small", "name: small\nsubnet: 224.0.0.0/24", `2:9: subnet: 224.0.0.0/24 is not for hosts`},
	{"name: small", "name: small\nsubnet: 10.0.0.0/30", `2:9: subnet 10.0.0.0/30 is too small for the switch and 3 hosts`},
	{"name: small", "name: small\nsubnet6: fd00::/126", `2:10: subnet6 fd00::/126 is too small`},
	{"name: small", "name: small\nswitch: forward", `2:9: switch must be a mapping, but is a text`},
	{"name: small", "name: small\nswitch: {queue: 0}", `2:17: queue: 0 is out of bounds; use a number from 1 to 65536`},
	{"name: small", "name: small\nswitch: {spin: 50}", `2:16: spin: "50" is no duration; write it like 50us`},
	{"name: small", "name: small\nswitch: {spin: 2s}", `2:16: spin: 2s is too long; use at most 1s`},
	{"name: small", "name: &a small", `1:7: name must be a single value, but is an anchor or alias`},
	{"name: small", "name: !!str small", `1:7: name must be a single value, but is a tag`},
	{"name: small", "---\nname: small\n---\nname: other", `4:1: a second document begins here`},
	{"name: small", "name: small\n\tseed: 1", `2:1: found a tab character`},
	{"name: small", "name: small\nconnect: smoke", `2:10: connect: "smoke" is unknown; use one of [cm tcp]`},
	{"name: small", "name: small\ncable: fibre", `2:8: cable: "fibre" is unknown; use one of [veth memory]`},
	{"name: small", "name: small\npriority: high", `2:11: priority: "high" is unknown; use one of [normal realtime]`},
	{"name: small", "name: small\ngroup: a:b", `2:8: group: "a:b" is no name of a group; write it as in /etc/group`},
	{"name: small", "name: small\ngroup: -x", `2:8: group: "-x" is no name of a group`},
	{"name: small", "name: small\ngroup: 0", `2:8: group: "0" is no number of a group; use one from 1 to 4294967294, or a name`},
	{"name: small", "name: small\ngroup: 4294967295", `2:8: group: "4294967295" is no number of a group`},
	{"name: small", "name: small\nslow: 1", `2:7: slow: 1 is out of bounds; use a number from 2 to 100000`},
	{"name: small", "name: small\ncost: connectx3", `2:7: cost needs the key slow: at full speed a rack is as fast as its machine`},
	{"name: small", "name: small\nslow: 40\ncost: Fast", `3:7: cost: cost name "Fast" must begin with a lower-case letter`},
	{"name: small", "name: small\nslow: 40\nconnect: tcp", `2:7: slow and connect: tcp exclude each other, because TCP stays at full speed; remove one of them`},
	{"name: small", "name: small\nslow: 40\nonerma: {}", `2:7: slow and onerma exclude each other, because no cost model has a 1RMA NIC; remove one of them`},
	{"name: small", "name: small\nslow: 40\ndaemons: shared", `2:7: slow and daemons: shared exclude each other`},
	{"name: small", "name: small\ndaemons: many", `2:10: daemons: "many" is unknown; use one of [separate shared]`},
	{"name: small", "name: small\ndaemons: shared\ncable: memory", `2:10: daemons: packets do not leave a shared process`},
	{"name: small", "name: small\ndaemons: shared\nonerma: {}", `2:10: daemons: 1RMA NICs need separate processes`},
	{"name: small", "name: small\nonerma: on", `2:9: onerma must be a mapping, but is a text`},
	{"name: small", "name: small\nonerma: {rtt: 0s}", `2:15: rtt: "0s": use a time from 1us to 1s`},
	{"name: small", "name: small\nonerma: {timeout: 2s}", `2:19: timeout: "2s": use a time from 1us to 1s`},
	{"name: small", "name: small\nonerma: {window: 4095}", `2:18: window: use a size from 4KiB, which one operation needs, to 64MiB`},
	{"name: small", "name: small\nonerma: {timeout: 5ms}", `2:9: timeout 5ms is too short: a WRITE waits at its target for dispatch (8ms) and needs two rtt (4ms); use at least 16ms`},
	{"role: memory", "role: storage", `4:11: role: "storage" is unknown; did you mean memory? use one of [compute memory metadata]`},
	{"name: small", "name: small\ncongestion: {}", `2:13: congestion lacks the key "rp_max_rate"`},
	{"name: small", "name: small\ncongestion: {rp_max_rate: 40Gbps}", `2:27: rp_max_rate: "40Gbps" is no rate`},
	{"name: small", "name: small\ncongestion: {rp_max_rate: 1Gbit, rp_gd: 9}", `2:41: rp_gd: 9 is out of bounds; use a number from 10 to 15`},
	{"name: small", "name: small\ncongestion: {rp_max_rate: 1Gbit, rp_ai: 1Mbit}", `2:34: unknown key "rp_ai" in congestion`},
	{"name: small", "name: small\ncongestion: {rp_max_rate: 1Gbit, algorithm: cubic}", `2:45: algorithm: "cubic" is unknown; use one of [dcqcn fixed none swift timely]`},
	{"name: small", "name: small\ncongestion: {rp_max_rate: 1Gbit, rp_time_reset: 11s}", `2:49: rp_time_reset: 11s is out of bounds; use a value from 1µs to 10s`},
	{"name: small", "name: small\ncongestion: {rp_max_rate: 1Gbit, np_min_time_between_cnps: 60us}", `2:13: congestion: rp_dce_tcp_rtt 55µs must be above np_min_time_between_cnps 60µs in profile paper`},
	{"name: small", "name: small\ncongestion: {rp_max_rate: 1Gbit, rp_min_rate: 2Gbit}", `2:13: congestion: rp_min_rate 2Gbit is above rp_max_rate 1Gbit`},
	{"role: memory", "rolle: memory", `4:5: unknown key "rolle" in a host; did you mean role? known keys: name, role, memory, cpu, nics, leaf, machine, spin, gso, rate, pkeys, tos, window, acks, recovery, congestion, lenient, distinctKeys, quota`},
	{"role: memory", "role: memory\n    memory: 64MB", `5:13: memory: "64MB" is no size: write 64MiB (units of 1024), or the number of bytes`},
	{"role: memory", "role: memory\n    memory: 1000", `5:13: memory: 1000 is no multiple of 4KiB`},
	{"role: memory", "role: memory\n    memory: 65GiB", `5:13: memory: 65GiB is too much; use at most 64GiB`},
	{"role: memory", "role: memory\n    cpu: -1", `5:10: cpu: -1 is out of bounds`},
	{"role: memory", "role: memory\n    cpu: any", `5:10: cpu: "any" is no whole number, auto or none`},
	{"role: memory", "role: memory\n    gso: maybe", `5:10: gso: "maybe" is unknown; use one of [on off]`},
	{"role: memory", "role: memory\n    pkeys: 5", `5:12: pkeys must be a list, but is a number`},
	{"role: memory", "role: memory\n    pkeys: []", `5:12: pkeys is empty`},
	{"role: memory", "role: memory\n    pkeys: [0x10000]", `5:13: pkeys: 65536 is out of bounds; use a number from 1 to 65535`},
	{"role: memory", "role: memory\n    pkeys: [0x8000]", `5:13: pkeys: 0x8000 names no partition`},
	{"role: memory", "role: memory\n    pkeys: [0x8001, 0x7fff, 1]", `5:29: pkeys: partition 0x1 is in the list already; use one of 0x1 and 0x8001`},
	{"role: memory", "role: memory\n    tos: 256", `5:10: tos: 256 is out of bounds; use a number from 0 to 255`},
	{"role: memory", "role: memory\n    quota: 5", `5:12: quota must be a mapping, but is a number`},
	{"role: memory", "role: memory\n    quota:\n      qps: 0", `6:12: qps: 0 is out of bounds; use a number from 1 to 16384`},
	{"role: memory", "role: memory\n    quota: {memory: 0}", `5:21: memory: take a size from 1B to 1024GiB`},
	{"role: memory", "role: memory\n    quota: {deviceMemory: 64KB}", `5:27: deviceMemory: "64KB" is no size`},
	{"role: memory", "role: memory\n    quota: {reserve: 100}", `5:22: reserve: 100 is out of bounds; use a number from 1 to 90`},
	{"role: memory", "role: memory\n    quota: {qp: 1}", `5:13: unknown key "qp" in quota; known keys: programs, pds`},
	{"name: ms0", "name: cn1", `5:11: host name "cn1" is taken already in line 3`},
	{"name: ms0", "name: switch", `3:11: host name "switch" is reserved`},
	{"name: ms0", "name: sixteen-bytes-xx", `3:11: host name "sixteen-bytes-xx" has 16 bytes; at most 15 are allowed`},
	{"name: ms0", "name: 0ms", `3:11: host name "0ms" must begin with a lower-case letter`},
	{"name: ms0", "name: ms0-", `3:11: host name "ms0-" must not end with "-"`},
	{"name: ms0", "name: ms0.example", `3:11: host name "ms0.example" has the character '.'`},
	{"name: cn[0-1]", "name: cn[0-1", `5:11: name: "cn[0-1" has an unmatched bracket`},
	{"name: cn[0-1]", "name: cn0-1]", `5:11: name: "cn0-1]" has an unmatched bracket`},
	{"name: cn[0-1]", "name: cn[1-0]", `5:11: name: "cn[1-0]": [1-0] counts down`},
	{"name: cn[0-1]", "name: cn[0]", `5:11: name: "cn[0]": [0] is no range`},
	{"name: cn[0-1]", "name: cn[00-123]", `5:11: name: "cn[00-123]": [00-123] has bounds of different width`},
	{"name: cn[0-1]", "name: cn[0-9999]", `5:11: name: "cn[0-9999]": [0-9999] has more than 1024 numbers`},
	{"name: cn[0-1]", "name: cn[0-99]-[0-99]", `5:11: name: "cn[0-99]-[0-99]" makes more than 1024 names`},
	{"name: cn[0-1]", "name: cn[0-255]", `5:11: more than 256 hosts`},
}

func TestMistakes(t *testing.T) {
	for _, c := range mistakes {
		text := strings.Replace(small, c.old, c.new, 1)
		_, err := ParseFile("f.yaml", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), "f.yaml:"+c.want) {
			t.Errorf("with %q:\n got  %v\n want f.yaml:%s", c.new, err, c.want)
		}
	}
}

// Mistakes of all kinds are reported at once, except those that only follow from another one.
func TestMistakesOfSeveralKinds(t *testing.T) {
	_, err := ParseFile("f.yaml", []byte(`name: Lab
sede: 1
switch: {program: swordbox, queue: 0, rules: [{server: nowhere, action: atomics}]}
hosts:
  - {name: ms0, role: memory}
  - {name: ms0, role: compute}
faults:
  - {link: ms0, kind: lose}
  - {link: ms0, kind: rate}
  - {link: ms7, kind: blackhole}
`))
	var got []string
	var all Errors
	if errors.As(err, &all) {
		for _, e := range all {
			got = append(got, fmt.Sprint(e.Line))
		}
	}
	// Line 10 names a host that does not exist, but the list of hosts has a mistake, so the name may
	// be right.
	if want := "1 2 3 8 9 6"; strings.Join(got, " ") != want {
		t.Errorf("mistakes in lines %v, want %s:\n%v", got, want, err)
	}
	_, err = ParseFile("f.yaml", []byte(`seed: -1
switch: {program: swordbox, rules: [{server: nowhere, action: atomics}]}
hosts: [{name: ms0, role: memory}]
faults: [{link: ms7, kind: blackhole}, {link: ms0, kind: rate}]
`))
	for _, want := range []string{"f.yaml:1:7", "nowhere", `link "ms7"`, "bitsPerSecond"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in:\n%v", want, err)
		}
	}
}

// faultMistakes has in each line a fault with one mistake, as the only one of small.
var faultMistakes = []struct{ fault, want string }{
	{"{link: cn9, kind: loss}", `8:12: link "cn9" is no host of this rack; hosts: [ms0 cn0 cn1]`},
	{"{link: cn0, kind: lose}", `8:23: kind: "lose" is unknown; did you mean loss? use one of [loss duplicate`},
	{"{kind: loss}", `8:5: a fault lacks the key "link"`},
	{"{link: cn0, kind: loss, probability: 10}", `8:42: probability: "10" is no probability; write 10%`},
	{"{link: cn0, kind: loss, probability: 0%}", `8:42: probability: "0%" is no probability`},
	{"{link: cn0, kind: loss, probability: NaN}", `8:42: probability: "NaN" is no probability`},
	{"{link: cn0, kind: loss, dir: left}", `8:34: dir: "left" is unknown; use one of [up down both]`},
	{"{link: cn0, kind: rate, bitsPerSecond: 1GB}", `8:44: bitsPerSecond: "1GB" is no rate`},
	{"{link: cn0, kind: rate}", `8:5: fault rule: bitsPerSecond`},
	{"{link: cn0, kind: loss, for: -1s}", `8:34: for: "-1s" is no duration`},
	{"{link: cn0, kind: loss, count: 0}", `8:36: count: 0 is out of bounds`},
	{"{link: cn0, kind: loss, match: {qpn: 0x1000000}}", `8:42: qpn: 16777216 is out of bounds`},
	{"{link: cn0, kind: loss, match: {opcodes: RC_ACK}}", `8:46: opcodes must be a list, but is a text`},
	{"{link: cn0, kind: loss, match: {opcodes: [RC_NACK]}}", `8:47: opcode: `},
	{"{link: cn0, kind: loss, match: {class: acks}}", `8:44: class: "acks" is unknown`},
	{"{link: cn0, kind: loss, match: {samePacket: yes}}", `8:49: samePacket: "yes" is neither true nor false`},
	{"loss", `8:5: a fault must be a mapping, but is a text`},
}

func TestMistakesInFaults(t *testing.T) {
	for _, c := range faultMistakes {
		_, err := ParseFile("f.yaml", []byte(small+"faults:\n  - "+c.fault+"\n"))
		if err == nil || !strings.HasPrefix(err.Error(), "f.yaml:"+c.want) {
			t.Errorf("%s:\n got  %v\n want f.yaml:%s", c.fault, err, c.want)
		}
	}
}

func TestMistakesOfTheWhole(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "f.yaml:1:1: the file is empty",
		"# only a comment\n":                     "f.yaml:1:1: the file is empty",
		"- a\n":                                  "f.yaml:1:3: a rack file must be a mapping, but is a list",
		"name: a\nhosts: []\n":                   "f.yaml:2:8: hosts is empty",
		"name: a\nhosts: {}\n":                   "f.yaml:2:8: hosts must be a list, but is a mapping",
		"name: a\n" + strings.Repeat("[", 60000): "f.yaml:2:33: more than 32 brackets are open here",
		strings.Repeat("#", maxFile) + "\n":      "f.yaml: the file has 65537 bytes; at most 65536 are allowed",
	} {
		if _, err := ParseFile("f.yaml", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.20q:\n got  %v\n want %s", text, err, want)
		}
	}
}

func TestManyMistakesAreBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString(small)
	for i := range 50 {
		fmt.Fprintf(&b, "key%d: 1\n", i)
	}
	_, err := Parse([]byte(b.String()))
	var all Errors
	if !errors.As(err, &all) || len(all) != maxErrors {
		t.Fatalf("%d errors, want %d: %v", len(all), maxErrors, err)
	}
	var one *Error
	if !errors.As(err, &one) || one.Line != 7 || one.Col != 1 {
		t.Errorf("first error %+v, want line 7", one)
	}
}

func TestNamesAreStable(t *testing.T) {
	a, err := Parse([]byte(small))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Parse([]byte(strings.Replace(small, "name: small", "name: small\nseed: 2", 1)))
	if err != nil {
		t.Fatal(err)
	}
	macs := make(map[wire.MAC]bool)
	for i := range a.Hosts {
		if a.Hosts[i].IPv4 != b.Hosts[i].IPv4 || a.Hosts[i].Port != b.Hosts[i].Port {
			t.Errorf("addresses depend on the seed: %+v %+v", a.Hosts[i], b.Hosts[i])
		}
		macs[a.Hosts[i].MAC], macs[b.Hosts[i].MAC] = true, true
	}
	if len(macs) != 2*len(a.Hosts) {
		t.Errorf("MAC addresses of two seeds are not distinct: %v", macs)
	}
}

func TestExpand(t *testing.T) {
	for pattern, want := range map[string]string{
		"cn0":              "cn0",
		"cn[0-3]":          "cn0 cn1 cn2 cn3",
		"cn[08-11]":        "cn08 cn09 cn10 cn11",
		"cn[9-11]":         "cn9 cn10 cn11",
		"r[0-1]-[0-1]x":    "r0-0x r0-1x r1-0x r1-1x",
		"a[0-0]b[000-001]": "a0b000 a0b001",
	} {
		got, err := Expand(pattern)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("Expand(%q) = %v, %v; want %s", pattern, got, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(full))
	f.Add([]byte(withRules("{server: ms9, action: move}\n    - {server: ms0, action: move}")))
	f.Add([]byte(withRules("{id: a, server: ms0, action: atomics, range: 0x1000-0x2000, shards: 2, service: \"18515\"}")))
	for _, s := range []string{"", "name", "- [", "name: a\nhosts: [{name: \"a[0-9]\", role: memory}]", "a: *b", "? a\n: b", "a: |\n x", "<<: {a: b}", "{a: !!x {}}", "%YAML 1.2\n---\na: b"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := Parse(b)
		var all Errors
		switch {
		case err == nil:
			data, err := r.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if again, err := Decode(data); err != nil || !reflect.DeepEqual(again, r) {
				t.Fatalf("decoded %+v, %v; want %+v", again, err, r)
			}
		case !errors.As(err, &all) || len(all) == 0:
			t.Fatalf("%T %v is no list of mistakes", err, err)
		}
	})
}
