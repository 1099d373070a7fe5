package scenario

import "github.com/rdmalab/rdmalab/store/kv"

// tableVariant returns the run of fusee with published or hardened clients.
func tableVariant(p Params) (func(*env) error, error) {
	if p.Mode == modePublished {
		return runTablePublished, nil
	}
	return runTable, nil
}

// runTablePublished runs published clients, which have the holes of fusee/HOLES.md. Only links
// fail, because the holes need no crash. Damage is not a failure of the run: it is written into the
// report.
func runTablePublished(e *env) error {
	p := drawTable(e)
	p.published, p.deaths, p.faults, p.masters, p.standby, p.vigil, p.format.Grow = true, nil, nil, 0, false, false, 0
	r := newTableRun(e, p, nil)
	err := r.run()
	if err == nil || e.rack == nil {
		return err
	}
	e.report.Damage = "slots that do not name the objects of their keys, or one key twice"
	if r.history.Check(kv.MostStates) != nil {
		e.report.Damage = "answers that no order explains (lost INSERTs, one key inserted or removed twice)"
	}
	e.note("%s", err)
	return nil
}
