package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/units"
)

// printPrograms lists the programs that use a NIC from outside its daemon, the quotas that these
// programs use, what programs were refused, and the shared regions. It prints nothing if there are none.
func printPrograms(w io.Writer, s rack.Status) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	rows := 0
	row := func(head, format string, args ...any) {
		if rows++; rows == 1 {
			fmt.Fprintln(t, "\n"+head)
		}
		fmt.Fprintf(t, format+"\n", args...)
	}
	daemons := make([]hostd.Status, len(s.Hosts))
	for i, n := range s.Hosts {
		if len(n.Daemon) > 0 {
			_ = json.Unmarshal(n.Daemon, &daemons[i]) // the status of another version is shown as far as it can be decoded
		}
	}
	for i, n := range s.Hosts {
		for _, p := range daemons[i].Programs {
			row("HOST\tPROGRAM\tPID\tQPS\tCQS\tMRS\tMAPPED\tPOSTED", "%s\t%s\t%d\t%d\t%d\t%d\t%s\t%d",
				n.Name, p.Name, p.PID, p.QPs, p.CQs, p.MRs, units.FormatSize(p.Bytes), p.Posted)
		}
	}
	rows = 0
	for i, n := range s.Hosts {
		if o := daemons[i].OneRMA; o != nil {
			row("HOST\t1RMA NIC\tINCARNATION\tPROCESSES\tREGIONS\tREQUESTED\tWINDOW", "%s\t%s\t%d\t%d\t%d\t%d\t%s",
				n.Name, either(o.Up, hostd.StateUp, hostd.StateDown), o.Incarnation, o.Processes, o.Regions, o.Requested, units.FormatSize(int64(o.Window)))
		}
	}
	rows = 0
	for i, n := range s.Hosts {
		for _, q := range daemons[i].Quotas {
			pool := either(q.Pool > 0, fmt.Sprint(q.Pool), "-")
			if q.Refused > 0 || q.Used > 0 && len(daemons[i].Programs) > 0 {
				row("HOST\tQUOTA\tOF EACH\tUSED BY ALL\tOF ALL\tREFUSALS", "%s\t%s\t%d\t%d\t%s\t%d", n.Name, q.Name, q.Quota, q.Used, pool, q.Refused)
			}
		}
	}
	rows = 0
	for i, n := range s.Hosts {
		for _, r := range daemons[i].Refusals {
			row("HOST\tREFUSED TO\tPID\tTIMES\tLATEST REASON", "%s\t%s\t%d\t%d\t%s", n.Name, either(r.Name != "", r.Name, "-"), r.PID, r.Times, r.Reason)
		}
	}
	rows = 0
	for i, n := range s.Hosts {
		for _, r := range daemons[i].Shared {
			row("HOST\tSHARED REGION\tSIZE\tADDRESS\tRKEY\tOPEN", "%s\t%s\t%s\t%#x\t%#x\t%d",
				n.Name, r.Name, units.FormatSize(int64(r.Length)), r.Addr, r.RKey, r.Open)
		}
	}
	return t.Flush()
}
