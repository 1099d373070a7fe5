package pipeline

// MarkedPorts counts for each port the rules of a program that are about frames arriving at this
// port. The switch asks the program about frames only at ports where the count is not 0.
type MarkedPorts struct{ marks []int }

// Add counts one more rule at a port.
func (q *MarkedPorts) Add(port int) {
	for len(q.marks) <= port {
		q.marks = append(q.marks, 0)
	}
	q.marks[port]++
}

// Remove removes a rule that Add has counted at a port.
func (q *MarkedPorts) Remove(port int) { q.marks[port]-- }

// Has reports whether the count of a port is not 0.
func (q *MarkedPorts) Has(port int) bool { return port < len(q.marks) && q.marks[port] > 0 }

// unmarked is the empty MarkedPorts of a program that does not decide about arriving frames.
var unmarked = new(MarkedPorts)
