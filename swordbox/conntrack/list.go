package conntrack

// list is a linked list of flows, in the order in which they were appended or touched. A flow is in
// at most one list.
type list struct {
	head, tail *Flow
	n          int
}

// push appends a flow that is in no list.
func (l *list) push(fl *Flow) {
	fl.prev, fl.next = l.tail, nil
	if l.tail != nil {
		l.tail.next = fl
	} else {
		l.head = fl
	}
	l.tail = fl
	l.n++
}

// remove deletes a flow that is in the list.
func (l *list) remove(fl *Flow) {
	if fl.prev != nil {
		fl.prev.next = fl.next
	} else {
		l.head = fl.next
	}
	if fl.next != nil {
		fl.next.prev = fl.prev
	} else {
		l.tail = fl.prev
	}
	fl.prev, fl.next = nil, nil
	l.n--
}

// touch moves a flow of the list to its end.
func (l *list) touch(fl *Flow) {
	if l.tail != fl {
		l.remove(fl)
		l.push(fl)
	}
}
