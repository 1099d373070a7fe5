package conntrack

// list is a list of rows by age, oldest first. A row is in one list at most.
type list struct {
	head, tail *Row
	n          int
}

// push appends a row that is in no list.
func (l *list) push(r *Row) {
	r.prev, r.next = l.tail, nil
	if l.tail != nil {
		l.tail.next = r
	} else {
		l.head = r
	}
	l.tail = r
	l.n++
}

// remove takes out a row that is in the list.
func (l *list) remove(r *Row) {
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		l.head = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		l.tail = r.prev
	}
	r.prev, r.next = nil, nil
	l.n--
}

// touch makes a row of the list the youngest.
func (l *list) touch(r *Row) {
	if l.tail != r {
		l.remove(r)
		l.push(r)
	}
}
