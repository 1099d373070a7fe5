package journal

// Behind the magic, the header has two amounts that rules of action count have counted and no
// server has confirmed. The first is the present amount, the second the amount that earlier
// incarnations of the switch left when they ended. One store of 8 aligned bytes writes each.
//
//	 0       16       24       32     64
//	+-------+--------+--------+------+
//	| magic | behind | former | 0    |
//	+-------+--------+--------+------+
const (
	behindAt = 16
	formerAt = 24
)

// SetBehind stores the amount that the switch has counted and no server has confirmed. It is called
// when the switch has counted a request, before the request or a FETCH_ADD for it leaves, and after
// each confirmation.
func (r *Journal) SetBehind(amount uint64) {
	if r != nil {
		le.PutUint64(r.b[behindAt:], amount)
	}
}

// FormerlyBehind returns how much earlier incarnations of the switch may have counted and lost: the
// sum of the last SetBehind of each. Each incarnation calls it once, before SetBehind. If the
// process dies during the call, the sum may become too large.
func (r *Journal) FormerlyBehind() uint64 {
	if r == nil {
		return 0
	}
	sum := le.Uint64(r.b[formerAt:]) + le.Uint64(r.b[behindAt:])
	le.PutUint64(r.b[formerAt:], sum)
	le.PutUint64(r.b[behindAt:], 0)
	return sum
}
