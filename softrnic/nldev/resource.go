package nldev

import (
	"cmp"
	"encoding/binary"
	"net/netip"
)

// kindRow says how objects of a kind are put into messages: table and entry are the attributes around a
// list and around one object of it, id the attribute with an object's number.
type kindRow struct {
	name             string
	table, entry, id int
	fill             func(m *message, a *query, o *Object)
}

var kindRows = [kinds]kindRow{
	PD:      {"pd", attrResPD, attrResPDEntry, attrPDN, (*message).fillPD},
	CQ:      {"cq", attrResCQ, attrResCQEntry, attrCQN, (*message).fillCQ},
	QP:      {"qp", attrResQP, attrResQPEntry, attrLQPN, (*message).fillQP},
	CMID:    {"cm_id", attrResCMID, attrResCMIDEntry, attrCMIDN, (*message).fillCMID},
	MR:      {"mr", attrResMR, attrResMREntry, attrMRN, (*message).fillMR},
	Context: {"ctx", attrResCtx, attrResCtxEntry, attrCtxN, (*message).fillContext},
	SRQ:     {"srq", attrResSRQ, attrResSRQEntry, attrSRQN, (*message).fillSRQ},
}

// objects returns the row of the command for a kind of objects.
func objects(k Kind) commandRow {
	return commandRow{
		get:  func(a *query, m *message) error { return a.getObject(m, k) },
		dump: func(a *query) error { return a.dumpObjects(k) },
	}
}

// maxEntry is the most that an object takes of a message, in bytes. A message of a dump ends when less
// than that is left.
const maxEntry = 640

// maxUsers is how many ranges of queue pairs an entry of a shared receive queue lists.
const maxUsers = 16

func (a *query) getObject(m *message, k Kind) error {
	d, err := a.named()
	if err == nil {
		err = a.port1(false)
	}
	if err != nil {
		return err
	}
	row := &kindRows[k]
	id, ok := a.at.u32(row.id)
	if !ok {
		return invalid
	}
	for _, o := range a.s.Objects(d.Index, k) {
		if o.Number == id {
			m.handle(d)
			row.fill(m, a, &o)
			return nil
		}
	}
	return noEntry
}

func (a *query) dumpObjects(k Kind) error {
	d, err := a.named()
	if err == nil {
		err = a.port1(false)
	}
	if err != nil {
		return err
	}
	row, all := &kindRows[k], a.s.Objects(d.Index, k)
	for first := true; first || len(all) > 0; first = false {
		m := a.begin(flagMulti)
		m.handle(d)
		m.nest(row.table, func() {
			for len(all) > 0 && len(m.b) < MaxDatagram-maxEntry {
				m.nest(row.entry, func() { row.fill(m, a, &all[0]) })
				all = all[1:]
			}
		})
		a.answer(m.end())
	}
	return nil
}

func (a *query) getSummary(m *message) error {
	d, err := a.named()
	if err == nil {
		m.summary(a, d)
	}
	return err
}

func (a *query) dumpSummaries() error {
	for _, d := range a.s.Devices() {
		m := a.begin(flagMulti)
		m.summary(a, &d)
		a.answer(m.end())
	}
	return nil
}

// summary has the number of objects of each kind.
func (m *message) summary(a *query, d *Device) {
	m.handle(d)
	m.nest(attrResSummary, func() {
		for k := range kinds {
			m.nest(attrSummaryEntry, func() {
				m.text(attrSummaryName, kindRows[k].name)
				m.u64(attrSummaryCurr, uint64(len(a.s.Objects(d.Index, k))))
			})
		}
	})
}

// owner says to whom an object belongs. A process that the program does not see is left out, as in the
// kernel.
func (m *message) owner(a *query, o *Owner) {
	switch {
	case o.Kernel != "":
		m.text(attrResKernel, o.Kernel[:min(len(o.Kernel), 64)])
	case o.PID != 0 && a.s.SeesPIDs:
		m.u32(attrResPID, o.PID)
	}
}

func (m *message) fillPD(a *query, o *Object) {
	m.u64(attrUseCount, o.Uses)
	m.u32(attrPDN, o.Number)
	m.owner(a, &o.Owner)
}

func (m *message) fillCQ(a *query, o *Object) {
	m.u32(attrCQE, o.Depth)
	m.u64(attrUseCount, o.Uses)
	m.u32(attrCQN, o.Number)
	m.owner(a, &o.Owner)
}

func (m *message) fillQP(a *query, o *Object) {
	m.u32(attrPortIndex, 1)
	m.u32(attrLQPN, o.Number)
	if o.Queue.Connected {
		m.u32(attrRQPN, o.Queue.Remote)
		m.u32(attrRQPSN, o.Queue.RecvPSN)
	}
	m.u32(attrSQPSN, o.Queue.SendPSN)
	if o.Queue.Connected {
		m.u8(attrPathMigState, 0) // migrated: there is no alternate path
	}
	m.u8(attrResType, o.Queue.Type)
	m.u8(attrResState, o.Queue.State)
	if o.Owner.Kernel == "" {
		m.u32(attrPDN, o.PD)
	}
	m.owner(a, &o.Owner)
}

func (m *message) fillMR(a *query, o *Object) {
	if a.s.SeesKeys {
		m.u32(attrRKey, o.Memory.RKey)
		m.u32(attrLKey, o.Memory.LKey)
	}
	m.u64(attrMRLen, o.Memory.Length)
	m.u32(attrMRN, o.Number)
	if o.Owner.Kernel == "" {
		m.u32(attrPDN, o.PD)
	}
	m.owner(a, &o.Owner)
}

func (m *message) fillCMID(a *query, o *Object) {
	c := &o.Conn
	m.u32(attrPortIndex, 1)
	if c.QP != 0 {
		m.u32(attrLQPN, c.QP)
		m.u8(attrResType, c.Type)
	}
	m.u32(attrResPS, c.Space)
	m.u8(attrResState, c.State)
	if c.Src.IsValid() {
		m.put(attrResSrc, socketAddress(c.Src))
	}
	if c.Dst.IsValid() {
		m.put(attrResDst, socketAddress(c.Dst))
	}
	m.u32(attrCMIDN, o.Number)
	m.owner(a, &o.Owner)
}

func (m *message) fillContext(a *query, o *Object) {
	m.u32(attrCtxN, o.Number)
	m.owner(a, &o.Owner)
}

func (m *message) fillSRQ(a *query, o *Object) {
	const basic = 0 // IBV_SRQT_BASIC
	m.u32(attrSRQN, o.Number)
	m.u8(attrResType, basic)
	m.u32(attrPDN, o.PD)
	m.nest(attrResQP, func() {
		for i, users := 0, o.Users; len(users) > 0 && i < maxUsers; i++ {
			n := run(users)
			m.nest(attrResQPEntry, func() {
				if n == 1 {
					m.u32(attrLQPN, users[0])
					return
				}
				m.u32(attrMinRange, users[0])
				m.u32(attrMaxRange, users[n-1])
			})
			users = users[n:]
		}
	})
	m.owner(a, &o.Owner)
}

// run returns how many numbers at the beginning of a list follow one another. The list is not empty.
func run(list []uint32) int {
	n := 1
	for n < len(list) && list[n] == list[n-1]+1 {
		n++
	}
	return n
}

// socketAddress encodes an address as a struct sockaddr_storage of the kernel.
func socketAddress(at netip.AddrPort) []byte {
	b := make([]byte, 128)
	binary.BigEndian.PutUint16(b[2:], at.Port())
	if a := at.Addr().Unmap(); a.Is4() {
		binary.NativeEndian.PutUint16(b, familyIPv4)
		copy(b[4:], a.AsSlice())
	} else {
		binary.NativeEndian.PutUint16(b, familyIPv6)
		copy(b[8:], a.AsSlice())
	}
	return b
}

// ByNumber orders objects by their numbers.
func ByNumber(a, b Object) int { return cmp.Compare(a.Number, b.Number) }
