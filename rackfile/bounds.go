package rackfile

import "fmt"

// bounds are the largest numbers of hosts and switches of a rack.
type bounds struct{ hosts, leaves, spines int }

var (
	onMachines = bounds{hosts: MaxHosts, leaves: maxLeaves, spines: maxSpines}
	inSim      = bounds{hosts: 1024, leaves: 64, spines: 16}
)

// tooMany says that a rack has more hosts than the bounds allow, and what allows more.
func (b bounds) tooMany() string {
	if b == inSim {
		return fmt.Sprintf("more than %d hosts; make the range smaller", b.hosts)
	}
	return fmt.Sprintf("more than %d hosts; make the range smaller or split the rack (in virtual time, `rdmalab run ycsb --on sim --file`, a rack has up to %d)", b.hosts, inSim.hosts)
}
