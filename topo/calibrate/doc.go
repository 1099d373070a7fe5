// Package calibrate measures a cost model in the simulator and compares what it finds with the
// figures that were published: what a rack with this model does is a consequence of queues, links,
// windows and threads together, not a figure of the file. Each comparison has a tolerance, and an
// experiment runs with the model that calibration accepted: nothing is tuned for one experiment.
package calibrate
