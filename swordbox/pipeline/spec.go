package pipeline

// Spec declares a program: its name, what it needs from the switch, and which resources it would
// need on a hardware switch.
type Spec struct {
	Name string
	// Doc is one sentence for listings.
	Doc string
	// Split: super-frames are split, and Packet is called for every packet. Without it Packet is
	// called once for a super-frame, with the headers of its first packet, and may return Apart to
	// have it split.
	Split bool
	// Verify: packets with a wrong ICRC are forwarded unchanged without a call of Packet; the
	// receiver drops and counts them. Rewrite always verifies, because a new ICRC would hide the
	// damage.
	Verify bool
	// Modes are the modes of the program's rules, like hardened; each rule has one of them. Empty: the
	// program has no modes.
	Modes []string
	Parts []Part
}

// Part declares the state of one part of a program, and what the part needs of a chip.
type Part struct {
	Name string
	// Mode is the mode that needs the part; "": all modes do.
	Mode string
	// Tables and Registers are the state that the part keeps, with the sizes that a hardware switch
	// would need.
	Tables    []TableSpec
	Registers []RegisterSpec
	// Needs lists what the part does and the stages of a switching chip cannot do.
	Needs []Need
}

// TableSpec declares an exact-match table.
type TableSpec struct {
	Name               string
	KeyBits, ValueBits int
	Entries            int
	// Learned: packets add and remove entries. On a chip the control plane alone does that.
	Learned bool
}

// Bits is the memory that the table takes.
func (t TableSpec) Bits() int { return t.Entries * (t.KeyBits + t.ValueBits) }

// RegisterSpec declares an array of registers.
type RegisterSpec struct {
	Name    string
	Width   int // bits of one register
	Entries int
	// Each is how many of the entries belong to each connection, as when each connection has a
	// ring; 0: the array is not divided among connections.
	Each int
}

// Bits is the memory that the registers take.
func (r RegisterSpec) Bits() int { return r.Entries * r.Width }

// Need is something that a program does and the stages of a switching chip do not.
type Need struct {
	Kind NeedKind `json:"kind"`
	// What describes the need, for people.
	What string `json:"what"`
	// Count is how many there are at a time, or for each packet (NeedPackets); 0: it is not
	// counted.
	Count int `json:"count,omitempty"`
	// Bits is the size of each; 0: it has none.
	Bits int `json:"bits,omitempty"`
}

// NeedKind is a kind of Need.
type NeedKind string

// Kinds of needs.
const (
	// NeedStore: packets are kept, to be sent later or again. A chip keeps a packet only in the
	// queue of a port.
	NeedStore NeedKind = "kept packets"
	// NeedTimer: something happens at a time. Stages act only when a packet passes.
	NeedTimer NeedKind = "timers"
	// NeedPackets: the program makes packets in addition to those that it forwards, at most Count for
	// each packet that arrives.
	NeedPackets NeedKind = "made packets"
	// NeedICRC: the ICRC is computed over the whole of a rewritten packet. Stages see its headers.
	NeedICRC NeedKind = "ICRC"
)

// NeedKinds lists all kinds.
var NeedKinds = []NeedKind{NeedStore, NeedTimer, NeedPackets, NeedICRC}

// Bits is the memory of all tables and registers of the part.
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

// Bits is the memory of all tables and registers of the program.
func (s *Spec) Bits() int {
	n := 0
	for i := range s.Parts {
		n += s.Parts[i].Bits()
	}
	return n
}
