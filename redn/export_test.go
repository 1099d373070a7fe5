package redn

// EndWithoutAdd ends a lap without raising its counts.
func (l *Loop) EndWithoutAdd() {
	l.restore()
	l.refresh()
}

// EnableUpTo appends an ENABLE with any limit.
func (q *Queue) EnableUpTo(to *Queue, limit uint32) { q.enable(to, limit) }
