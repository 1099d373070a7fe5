package pipeline

// Spec declares a program: its name, what it needs from the switch, and which resources it would
// need on a hardware switch.
type Spec struct {
	Name string
	// Doc is one sentence for listings.
	Doc string
	// Split is true if the switch splits super-frames and calls Packet for every packet. If Split
	// is false, the switch calls Packet once for a super-frame, with the headers of its first
	// packet; the program may return Apart to have the super-frame split.
	Split bool
	// Verify is true if the switch forwards a packet with a wrong ICRC unchanged, without a call of
	// Packet. The receiver drops and counts such a packet. A verdict Rewrite always verifies the
	// ICRC, because a new ICRC would hide the damage.
	Verify bool
	// Blind is true if the program forwards every packet, whatever is in it. Then the switch need not
	// call Packet.
	Blind bool
	// Modes are the modes of the program's rules, like hardened. Each rule has one of them. Empty:
	// the program has no modes.
	Modes []string
	Parts []Part
}

// Part declares the state of one part of a program, and what the part needs of a chip.
type Part struct {
	Name string
	// Mode is the mode for which the switch needs the part; "" means all modes.
	Mode string
	// Tables and Registers are the state that the part keeps, with the sizes that a hardware switch
	// would need.
	Tables    []TableSpec
	Registers []RegisterSpec
	// Needs lists the things that the part does and that the stages of a switching chip cannot do.
	Needs []Need
}

// TableSpec declares an exact-match table.
type TableSpec struct {
	Name               string
	KeyBits, ValueBits int
	Entries            int
	// Learned is true if packets add and remove entries. On a chip only the control plane can do
	// that.
	Learned bool
}

func (t TableSpec) Bits() int { return t.Entries * (t.KeyBits + t.ValueBits) }

// RegisterSpec declares an array of registers.
type RegisterSpec struct {
	Name    string
	Width   int // bits of one register
	Entries int
	// Each is how many entries belong to one connection, if each connection has entries of its own,
	// like a ring; 0 means that the entries are not divided among connections.
	Each int
}

func (r RegisterSpec) Bits() int { return r.Entries * r.Width }

// Need is something that a program does but the stages of a switching chip cannot do.
type Need struct {
	Kind NeedKind `json:"kind"`
	// What describes the need, for people.
	What string `json:"what"`
	// Count depends on Kind. NeedStore: how many packets are kept at a time. NeedTimer: how many
	// timers run at a time. NeedPackets: how many packets the program makes for each packet that
	// arrives. 0 means not counted.
	Count int `json:"count,omitempty"`
	// Bits is the size in bits of each of the things that Count counts; 0 means that they have no
	// size.
	Bits int `json:"bits,omitempty"`
}

// NeedKind is a kind of Need.
type NeedKind string

const (
	// NeedStore: packets are kept, to be sent later or again. A chip keeps a packet only in the
	// queue of a port.
	NeedStore NeedKind = "kept packets"
	// NeedTimer: the program does something at a certain time. Stages act only when a packet
	// passes.
	NeedTimer NeedKind = "timers"
	// NeedPackets: the program makes packets in addition to those that it forwards, at most Count
	// for each packet that arrives.
	NeedPackets NeedKind = "made packets"
	// NeedICRC: the ICRC is computed over the whole rewritten packet. Stages see only its headers.
	NeedICRC NeedKind = "ICRC"
)

var NeedKinds = []NeedKind{NeedStore, NeedTimer, NeedPackets, NeedICRC}

func (p *Part) Bits() int {
	n := 0
	for _, t := range p.Tables {
		n += t.Bits()
	}
	for _, r := range p.Registers {
		n += r.Bits()
	}
	return n
}

func (s *Spec) Bits() int {
	n := 0
	for i := range s.Parts {
		n += s.Parts[i].Bits()
	}
	return n
}
