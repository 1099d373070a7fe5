package rackfile

import "fmt"

// Bounds and defaults of slow motion.
const (
	minSlow, maxSlow = 2, 100_000
	// defaultCost is the cost model of a rack in slow motion whose file names none.
	defaultCost = "connectx5"
)

// SlowDown makes r a rack in slow motion, by a factor that parseSlow has read. Nothing polls, because
// frames wait longer than a poll lasts, and each packet is a frame of its own, as in the cost model.
func (r *Rack) SlowDown(factor int) error {
	switch {
	case factor < minSlow || factor > maxSlow:
		return fmt.Errorf("slow motion by %d: use a factor from %d to %d", factor, minSlow, maxSlow)
	case r.Connect == ConnectTCP:
		return fmt.Errorf("slow and connect: tcp exclude each other, because TCP stays at full speed; remove one of them")
	case r.Shared():
		return fmt.Errorf("slow and daemons: shared exclude each other, because packets between the NICs of one process take no time; remove one of them")
	case r.Fabric != nil:
		return fmt.Errorf("slow and fabric exclude each other, because the trunks between switches stay at full speed; remove one of them")
	case r.OneRMA != nil:
		return fmt.Errorf("slow and onerma exclude each other, because no cost model has a 1RMA NIC; remove one of them")
	}
	r.Slow = factor
	if r.Cost == "" {
		r.Cost = defaultCost
	}
	r.Switch.Spin = 0
	for i := range r.Hosts {
		r.Hosts[i].Spin, r.Hosts[i].GSO = 0, false
	}
	return nil
}

// slowMotion applies the keys slow and cost.
func (d *decoder) slowMotion(f *file, r *Rack) {
	if r.Slow == 0 {
		if r.Cost != "" {
			d.errorf(f.costAt, "cost needs the key slow: at full speed a rack is as fast as its machine")
		}
		return
	}
	if err := r.SlowDown(r.Slow); err != nil {
		d.errorf(f.slowAt, "%v", err)
	}
}

// Factor returns by how much the rack is slower than real time; 1 means that it is not in slow motion.
func (r *Rack) Factor() int { return max(1, r.Slow) }
