package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/plot/export"
)

// writeReport writes a report and its parts into a directory. It writes each as table, CSV and
// JSON, and as pictures if it has a chart, SVG and PDF. The file summary.txt has the summaries (Report.Summary)
// of the report and of its parts.
func writeReport(dir string, r *experiment.Report) error {
	var errs []error
	var summary strings.Builder
	for _, part := range append(r.Parts, r) {
		name := filepath.Join(dir, strings.ReplaceAll(part.Experiment, " ", "-"))
		errs = append(errs, writeForms(name, part))
		if len(part.Summary) > 0 {
			summary.WriteString(part.Experiment + ": " + part.Figure + "\n  " + strings.Join(part.Summary, "\n  ") + "\n\n")
		}
	}
	if summary.Len() > 0 {
		errs = append(errs, os.WriteFile(filepath.Join(dir, "summary.txt"), []byte(summary.String()), 0o644))
	}
	return errors.Join(errs...)
}

// writeForms writes one report as table, CSV, JSON and, if it has a chart, as SVG and PDF. name is the
// path of the files without their suffixes.
func writeForms(name string, r *experiment.Report) error {
	var table, csv bytes.Buffer
	asJSON, err := json.MarshalIndent(r, "", "  ")
	errs := []error{err, r.WriteTable(&table), r.WriteCSV(&csv)}
	files := map[string][]byte{".txt": table.Bytes(), ".csv": csv.Bytes(), ".json": append(asJSON, '\n')}
	if r.Chart != nil {
		files[".svg"] = r.Chart.SVG()
		if pdf, err := export.PDF(files[".svg"]); err == nil {
			files[".pdf"] = pdf
		} else {
			errs = append(errs, err)
		}
	}
	for suffix, text := range files {
		errs = append(errs, os.WriteFile(name+suffix, text, 0o644))
	}
	return errors.Join(errs...)
}
